/**
 * Counts the successful calls to the accounting API by month, company and kind.
 *
 * Intuit meters the successful calls of an application over all companies, and blocks the application when it has made
 * more calls than its plan allows. Calls that create or change objects ("Core") are not metered. Reads, queries, change
 * data and reports ("CorePlus") are metered.
 *
 * Intuit does not document how it counts batches and attachments. Here, a batch counts as one metered call, and so
 * does an attachment. Months are in UTC, because Intuit does not document its time zone.
 *
 * @see docs/intuit.md, "App Partner Program"
 */
import type { Clock } from '@integration-host/shared/process/clock'

export const callKinds = ['core', 'read', 'query', 'cdc', 'report', 'batch', 'attachment'] as const
export type CallKind = (typeof callKinds)[number]

/** The number of successful calls of each kind. A kind without calls is absent. */
export type CallCounts = Readonly<Partial<Record<CallKind, number>>>

export interface RealmUsage {
  readonly realm: string
  readonly calls: CallCounts
}

/** Stores the counts of each month. A month is a text such as `2026-11`. */
export interface UsageStore {
  /** Adds calls to the counts of a month. If the promise rejects, the calls may have been added or not. */
  add(month: string, usage: readonly RealmUsage[]): Promise<void>
  /** Returns the counts over all companies. */
  total(month: string): Promise<CallCounts>
  /** Returns the counts of the companies whose realm comes after `after`, in the order of the realms. */
  list(
    month: string,
    page: { readonly after: string; readonly limit: number },
  ): Promise<RealmUsage[]>
  find(month: string, realm: string): Promise<CallCounts>
}

export const isMonth = (text: string): boolean => /^\d{4}-(?:0[1-9]|1[0-2])$/.test(text)

/** @param at epoch milliseconds */
export const monthOf = (at: number): string => new Date(at).toISOString().slice(0, 7)

/** Returns the number of metered calls. */
export const meteredOf = (calls: CallCounts): number =>
  callKinds.reduce((sum, kind) => sum + (kind === 'core' ? 0 : (calls[kind] ?? 0)), 0)

const KIND_OF: Readonly<Record<string, CallKind>> = {
  query: 'query',
  cdc: 'cdc',
  reports: 'report',
  batch: 'batch',
  upload: 'attachment',
  download: 'attachment',
}
const RESOURCE = /^\/v3\/company\/[^/]+\/([^/?]*)/

/** @param path a path below `/v3/company/<realm>/`, with its query */
export function kindOf(method: string, path: string): CallKind {
  const resource = RESOURCE.exec(path)?.[1]?.toLowerCase() ?? ''
  return KIND_OF[resource] ?? (method === 'GET' || method === 'HEAD' ? 'read' : 'core')
}

export interface Usage extends AsyncDisposable {
  /** Counts one successful call. */
  count(realm: string, method: string, path: string): void
}

/** The interval at which the counts are added to the store. A killed process loses the counts of the last interval. */
const FLUSH_MS = 5_000

export interface UsageDeps {
  readonly store: UsageStore
  readonly clock: Clock
  /** Called for each call that was counted. */
  readonly onCall: (kind: CallKind) => void
  /** Called after each flush with the counts of this month over all companies and all replicas. */
  readonly onTotal: (total: CallCounts) => void
  /** Called at the first of several consecutive failures of the store. */
  readonly onError: (error: unknown) => void
}

/**
 * Starts counting. Calls are counted in memory. The counts are added to the store every five seconds and at disposal,
 * or later if the store is unavailable.
 *
 * If it is unknown whether counts were added, they are added again. A call may then be counted twice, which is safer
 * for the budget than a call that is not counted.
 */
export function startUsage({ store, clock, onCall, onTotal, onError }: UsageDeps): Usage {
  /** The calls that are not stored yet, by month and realm. */
  const pending = new Map<string, Map<string, Partial<Record<CallKind, number>>>>()
  let month = ''
  let monthEndsAt = 0
  let isFailing = false

  function currentMonth(): string {
    const now = clock.now()
    if (now < monthEndsAt) return month
    const date = new Date(now)
    month = monthOf(now)
    monthEndsAt = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1)
    return month
  }

  function add(of: string, realm: string, kind: CallKind, calls: number): void {
    const realms = pending.get(of) ?? new Map<string, Partial<Record<CallKind, number>>>()
    pending.set(of, realms)
    const counts = realms.get(realm) ?? {}
    realms.set(realm, counts)
    counts[kind] = (counts[kind] ?? 0) + calls
  }

  async function flush(): Promise<void> {
    try {
      for (const [of, realms] of pending.entries().toArray()) {
        pending.delete(of)
        const usage = [...realms].map(([realm, calls]) => ({ realm, calls }))
        try {
          await store.add(of, usage)
        } catch (error) {
          for (const { realm, calls } of usage)
            for (const kind of callKinds) if (calls[kind]) add(of, realm, kind, calls[kind])
          throw error
        }
      }
      onTotal(await store.total(currentMonth()))
      isFailing = false
    } catch (error) {
      if (!isFailing) onError(error)
      isFailing = true
    }
  }

  const repetition = clock.repeat(async () => {
    await flush()
    return FLUSH_MS
  })
  return {
    count(realm, method, path) {
      const kind = kindOf(method, path)
      add(currentMonth(), realm, kind, 1)
      onCall(kind)
    },
    async [Symbol.asyncDispose]() {
      await repetition[Symbol.asyncDispose]()
      await flush()
    },
  }
}

/**
 * Returns a usage store in memory. It counts only the calls of this process, and the counts are lost when the process
 * exits.
 */
export function createMemoryUsageStore(): UsageStore {
  const months = new Map<string, Map<string, CallCounts>>()
  const of = (month: string): ReadonlyMap<string, CallCounts> => months.get(month) ?? new Map()
  return {
    async add(month, usage) {
      const realms = months.get(month) ?? new Map<string, CallCounts>()
      months.set(month, realms)
      for (const { realm, calls } of usage)
        realms.set(realm, totalOf([realms.get(realm) ?? {}, calls]))
    },
    total: async (month) => totalOf([...of(month).values()]),
    list: async (month, { after, limit }) =>
      [...of(month)]
        .filter(([realm]) => realm > after)
        .toSorted(([one], [other]) => (one < other ? -1 : 1))
        .slice(0, limit)
        .map(([realm, calls]): RealmUsage => ({ realm, calls })),
    find: async (month, realm) => of(month).get(realm) ?? {},
  }
}

function totalOf(all: readonly CallCounts[]): CallCounts {
  const total: Partial<Record<(typeof callKinds)[number], number>> = {}
  for (const counts of all)
    for (const kind of callKinds)
      if (counts[kind] !== undefined) total[kind] = (total[kind] ?? 0) + counts[kind]
  return total
}
