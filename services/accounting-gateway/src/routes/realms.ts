import {
  type RealmActivity,
  RealmActivityList,
  RealmCalls,
} from '@integration-host/shared/contracts/realm-activity'
import { Realm } from '@integration-host/shared/contracts/realm'
import { callerOf, needs, onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { RealmActivityLog, RealmState } from '../realm/realm-activity.ts'
import type { RealmRates } from '../realm/throttle.ts'
import { meteredOf, monthOf, type UsageStore } from '../usage/usage.ts'

export interface RealmRouteDeps {
  readonly activity: RealmActivityLog
  readonly rates: RealmRates
  readonly usage: UsageStore
  /** Returns the time in epoch milliseconds. */
  readonly now: () => number
}

const MAX_REALMS = 100

/**
 * `GET /realms` and `GET /realms/{realm}` return the recent activity of companies at this replica. These routes require
 * no scope for the accounting API, because operators without such a scope also have to find out why calls fail.
 */
export function realmRoutes({ activity, rates, usage, now }: RealmRouteDeps): Hono {
  const tags = ['usage']
  const iso = (ms: number): string => new Date(ms).toISOString()
  // A failure of Redis must not make these routes fail, because operators need the routes during outages.
  const meteredCalls = async (realm: string): Promise<number | null> => {
    try {
      return meteredOf(await usage.find(monthOf(now()), realm))
    } catch {
      return null
    }
  }
  const viewOf = async (state: RealmState): Promise<RealmActivity> => ({
    Realm: state.realm,
    HeldUntil: state.heldUntil === null ? null : iso(state.heldUntil),
    Waiting: state.waiting,
    LastSecond: state.lastSecond,
    LastMinute: state.lastMinute,
    Failed: state.failed.length,
    Metered: await meteredCalls(state.realm),
  })
  return new Hono()
    .get(
      '/realms',
      needs('audit:read'),
      onlyKnownQuery(),
      describeRoute({
        operationId: 'listRealms',
        tags,
        summary: 'Companies in a cool-down, with waiting calls, and the busiest, of this replica',
        responses: responses(RealmActivityList),
      }),
      async (c) => {
        const caller = callerOf(c)
        const states = activity.list().filter(({ realm }) => caller.mayUseRealm(realm))
        return c.json({
          Limits: {
            PerSecond: rates.perSecond,
            PerMinute: rates.perMinute,
            Concurrent: rates.concurrent,
          },
          Month: monthOf(now()),
          items: await Promise.all(states.slice(0, MAX_REALMS).map(viewOf)),
        } satisfies RealmActivityList)
      },
    )
    .get(
      '/realms/:realm',
      needs('audit:read'),
      onlyKnownQuery(),
      describeRoute({
        operationId: 'getRealm',
        tags,
        summary: 'One company with its last failed calls, of this replica',
        responses: responses(RealmCalls),
      }),
      validate('param', z.object({ realm: Realm })),
      async (c) => {
        const state = activity.find(c.req.valid('param').realm)
        return c.json({
          ...(await viewOf(state)),
          Calls: state.failed.map((call) => ({
            At: iso(call.at),
            Method: call.method,
            Path: call.path,
            Status: call.status,
            Code: call.code,
            ProviderError: call.providerError,
            DurationMs: Math.round(call.durationMs),
            WaitedMs: Math.round(call.waitedMs),
            Attempts: call.attempts,
            IntuitTid: call.traceId,
            RequestID: call.requestId,
          })),
        } satisfies RealmCalls)
      },
    )
}
