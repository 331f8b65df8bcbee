import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import {
  callKinds,
  isMonth,
  meteredOf,
  monthOf,
  type RealmUsage,
  type UsageStore,
} from '../usage/usage.ts'

const Calls = z
  .partialRecord(z.enum(callKinds), z.int().nonnegative())
  .meta({ description: 'successful calls by kind; a kind without calls is missing' })
const Metered = z.int().nonnegative().meta({ description: 'all calls except those of kind core' })

const UsageView = z
  .object({
    Month: z.string().meta({ examples: ['2026-11'] }),
    Budget: z.int().nullable().meta({ description: 'MONTHLY_BUDGET; null if it is not set' }),
    Total: z.object({ Calls, Metered }).nullable().meta({
      description: 'over all companies; null for a key that may not use all companies',
    }),
    items: z.array(z.object({ Realm: z.string(), Calls, Metered })),
    next_cursor: z.string().nullable(),
  })
  .meta({ ref: 'Usage' })

const UsageQuery = z.object({
  month: z.string().refine(isMonth, 'must be a month such as 2026-11').optional(),
  realm: Realm.optional(),
  cursor: Realm.optional(),
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
})

export interface UsageRouteDeps {
  readonly usage: UsageStore
  /** `MONTHLY_BUDGET`; `null` if it is not set. */
  readonly budget: number | null
  /** Returns the time in epoch milliseconds. */
  readonly now: () => number
}

/**
 * `GET /usage` returns the successful calls of a month by company and kind. A key gets only the companies that it may
 * use.
 */
export const usageRoutes = ({ usage, budget, now }: UsageRouteDeps): Hono =>
  new Hono().get(
    '/usage',
    needs('gateway:read'),
    describeRoute({
      operationId: 'getUsage',
      tags: ['usage'],
      summary: 'Successful calls of a month by company and kind, beside the budget',
      responses: responses(UsageView),
    }),
    knownQuery(UsageQuery),
    async (c) => {
      const caller = callerOf(c)
      const { month = monthOf(now()), realm, cursor = '', limit } = c.req.valid('query')
      if (month > monthOf(now()))
        throw new IntegrationError('invalid_request', `month: ${month} has not begun`)
      if (realm !== undefined) caller.requireRealm(realm)
      const total = caller.isBoundToRealms ? null : await usage.total(month)
      const visible = (one: RealmUsage): boolean => caller.mayUseRealm(one.realm)
      const found =
        realm === undefined
          ? await listVisible(usage, month, { after: cursor, limit: limit + 1, visible })
          : [{ realm, calls: await usage.find(month, realm) }]
      const page = found.slice(0, limit)
      return c.json({
        Month: month,
        Budget: budget,
        Total: total && { Calls: total, Metered: meteredOf(total) },
        items: page.map((one) => ({
          Realm: one.realm,
          Calls: one.calls,
          Metered: meteredOf(one.calls),
        })),
        next_cursor: found.length > limit ? (page.at(-1)?.realm ?? null) : null,
      })
    },
  )

const PAGE = 1_000

/** Returns the next companies that the caller may see. The response does not show that other companies were skipped. */
async function listVisible(
  usage: UsageStore,
  month: string,
  {
    after,
    limit,
    visible,
  }: {
    readonly after: string
    readonly limit: number
    readonly visible: (one: RealmUsage) => boolean
  },
): Promise<readonly RealmUsage[]> {
  const found: RealmUsage[] = []
  for (let from = after; ;) {
    const page = await usage.list(month, { after: from, limit: PAGE })
    found.push(...page.filter(visible))
    const last = page.at(-1)
    if (found.length >= limit || page.length < PAGE || last === undefined)
      return found.slice(0, limit)
    from = last.realm
  }
}
