import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { type AuditEntry, AuditPage } from '@integration-host/shared/contracts/audit'
import { CredentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { callerOf, needs } from '@integration-host/shared/http/request'
import { knownQuery, responses } from '@integration-host/shared/http/service-app'
import type { CredentialStore } from '../credential/credential-store.ts'
import { wholeNumber } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

const AuditQuery = z.object({
  after: wholeNumber(0, Number.MAX_SAFE_INTEGER).optional(),
  before: wholeNumber(1, Number.MAX_SAFE_INTEGER).optional(),
  name: CredentialName.optional(),
  limit: wholeNumber(1, 1_000).optional(),
})

/**
 * `GET /audit`. With the parameter `after`, returns the entries of the whole log in order, beginning after the entry
 * with this number, so that a client can verify the hash chain. Otherwise returns the newest entries first. With
 * `name`, returns only the entries of one credential.
 */
export function auditRoutes({ store }: RouteDeps): Hono {
  return new Hono().get(
    '/audit',
    needs('audit:read'),
    describeRoute({
      operationId: 'listAuditEntries',
      tags: ['custody'],
      summary:
        'The audit log: the newest entries first, or in order from the entry after `after` on. A page with the newest entries first may be empty although `next_before` is not null',
      responses: responses(AuditPage),
    }),
    knownQuery(AuditQuery),
    async (c) => {
      const { after, before, name, limit = 100 } = c.req.valid('query')
      const caller = callerOf(c)
      if (after !== undefined) {
        if (before !== undefined || name !== undefined)
          throw new IntegrationError('invalid_request', 'after excludes before and name')
        caller.requireEveryRealm()
        const { items, head } = await store.readAudit(after, limit)
        return c.json({ items: [...items], head } satisfies AuditPage)
      }
      if (name !== undefined) caller.requireRealm(realmOf(name))
      // An audit entry without a name concerns all credentials.
      const isVisible = (of: string): boolean =>
        name === undefined
          ? of === ''
            ? !caller.isBoundToRealms
            : caller.mayUseRealm(realmOf(of))
          : of === name
      return c.json(
        (await newestAudit(store, {
          before,
          limit,
          isWanted: ({ Name }) => isVisible(Name),
        })) satisfies AuditPage,
      )
    },
  )
}

/** The maximum number of entries that one read of the audit log returns. */
const BATCH = 1_000
/** How many audit entries are searched for one page. This limits the time of a search with few matches. */
const MAX_SEARCHED = 5_000

/**
 * Returns at most `limit` matching audit entries with a number below `before`, newest first. If matches are rare, a
 * page may have fewer entries than `limit`, or none. `next_before` is the value of `before` for the next page; `null`
 * if there are no older entries.
 */
async function newestAudit(
  store: Pick<CredentialStore, 'readAuditBackwards'>,
  {
    before = Number.MAX_SAFE_INTEGER,
    limit,
    isWanted,
  }: {
    readonly before: number | undefined
    readonly limit: number
    readonly isWanted: (entry: AuditEntry) => boolean
  },
): Promise<AuditPage> {
  const items: AuditEntry[] = []
  let next = before
  for (let searched = 0; ; searched += BATCH) {
    const batch = await store.readAuditBackwards(next, BATCH)
    for (const entry of batch.items) {
      next = entry.Seq
      if (isWanted(entry)) items.push(entry)
      if (items.length === limit) break
    }
    const isAtEnd = batch.items.length < BATCH && next === (batch.items.at(-1)?.Seq ?? next)
    if (isAtEnd || items.length === limit || searched + BATCH >= MAX_SEARCHED)
      return { items, head: batch.head, next_before: isAtEnd || next <= 1 ? null : next }
  }
}
