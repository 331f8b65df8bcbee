import { type CallCounts, callKinds, type RealmUsage, type UsageStore } from '../../usage/usage.ts'

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
      for (const { realm, calls } of usage) realms.set(realm, sum([realms.get(realm) ?? {}, calls]))
    },
    total: async (month) => sum([...of(month).values()]),
    list: async (month, { after, limit }) =>
      [...of(month)]
        .filter(([realm]) => realm > after)
        .toSorted(([one], [other]) => (one < other ? -1 : 1))
        .slice(0, limit)
        .map(([realm, calls]): RealmUsage => ({ realm, calls })),
    find: async (month, realm) => of(month).get(realm) ?? {},
  }
}

function sum(all: readonly CallCounts[]): CallCounts {
  const total: Partial<Record<(typeof callKinds)[number], number>> = {}
  for (const counts of all)
    for (const kind of callKinds)
      if (counts[kind] !== undefined) total[kind] = (total[kind] ?? 0) + counts[kind]
  return total
}
