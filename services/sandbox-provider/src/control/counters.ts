import { z } from 'zod'
import { faultTargets, type FaultTarget } from './faults.ts'

const Count = z.int().nonnegative()

export const RealmCounters = z.object({
  codeExchanges: Count,
  codeReuses: Count.meta({ description: 'a code was used a second time; its grant was ended' }),
  refreshes: Count.meta({ description: 'refresh calls that were granted' }),
  refreshesRefused: Count,
  tokenReuses: Count.meta({ description: 'refresh calls with a token that was already rotated' }),
  maxConcurrentRefreshes: Count,
  apiCalls: Count.meta({ description: 'all calls that name the realm, rejected ones too' }),
  apiUnauthorized: Count.meta({
    description: 'calls that name the realm and were rejected with 401',
  }),
  entitiesCreated: Count,
  playedBack: Count.meta({ description: 'POST calls whose requestid was known' }),
  revocations: Count,
})
export type RealmCounters = z.output<typeof RealmCounters>
export type RealmCounter = Exclude<keyof RealmCounters, 'maxConcurrentRefreshes'>

export const CountersView = z
  .object({
    codeExchanges: Count,
    refreshes: Count,
    apiCalls: Count,
    clientsRefused: Count.meta({ description: 'calls with wrong client authentication' }),
    faultsServed: z.record(z.enum(faultTargets), Count),
    realms: z.record(z.string(), RealmCounters),
  })
  .meta({ ref: 'Counters' })
export type CountersView = z.output<typeof CountersView>

const zero = (): RealmCounters =>
  RealmCounters.parse(
    Object.fromEntries(Object.keys(RealmCounters.shape).map((counter) => [counter, 0])),
  )

/** Counts the calls that the provider has received since its start or the last reset. */
export function createCounters() {
  let realms = new Map<string, RealmCounters>()
  let faultsServed = { token: 0, api: 0, revoke: 0, discovery: 0 }
  let clientsRefused = 0
  const inFlight = new Map<string, number>()
  const of = (realm: string): RealmCounters => {
    const known = realms.get(realm)
    if (known !== undefined) return known
    const fresh = zero()
    realms.set(realm, fresh)
    return fresh
  }
  const sum = (what: RealmCounter): number =>
    [...realms.values()].reduce((total, counters) => total + counters[what], 0)
  return {
    count: (realm: string, what: RealmCounter) => void of(realm)[what]++,
    /** Counts a refresh call of the realm as in flight until the returned function is called. */
    refreshBegins(realm: string): () => void {
      const now = (inFlight.get(realm) ?? 0) + 1
      inFlight.set(realm, now)
      const counters = of(realm)
      counters.maxConcurrentRefreshes = Math.max(counters.maxConcurrentRefreshes, now)
      return () => {
        const left = (inFlight.get(realm) ?? 1) - 1
        if (left > 0) inFlight.set(realm, left)
        else inFlight.delete(realm)
      }
    },
    clientRejected: () => void clientsRefused++,
    faultServed: (target: FaultTarget) => void faultsServed[target]++,
    view: (): CountersView => ({
      codeExchanges: sum('codeExchanges'),
      refreshes: sum('refreshes'),
      apiCalls: sum('apiCalls'),
      clientsRefused,
      faultsServed: { ...faultsServed },
      realms: Object.fromEntries(
        [...realms].map(([realm, counters]) => [realm, { ...counters }] as const),
      ),
    }),
    reset() {
      realms = new Map()
      faultsServed = { token: 0, api: 0, revoke: 0, discovery: 0 }
      clientsRefused = 0
    },
  }
}
export type Counters = ReturnType<typeof createCounters>
