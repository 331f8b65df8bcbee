/** Merges what the replicas of the gateway have recorded about the companies. */
import type { RealmActivity, RealmCalls } from '@integration-host/shared/contracts/realm-activity'

const MAX_CALLS = 20

/**
 * Returns each company once: companies in a cool-down first, then companies with waiting calls, then the busiest
 * companies.
 */
export function mergeRealms(
  replicas: readonly (readonly RealmActivity[])[],
): readonly RealmActivity[] {
  return [...Map.groupBy(replicas.flat(), ({ Realm }) => Realm).values()]
    .map(mergeRealm)
    .toSorted(
      (one, other) =>
        Number(other.HeldUntil !== null) - Number(one.HeldUntil !== null) ||
        other.Waiting - one.Waiting ||
        other.LastMinute - one.LastMinute ||
        one.Realm.localeCompare(other.Realm),
    )
}

/**
 * The counts of the replicas are added up, except the counts of the month, which already include all
 * replicas.
 */
export function mergeRealm(same: readonly RealmActivity[]): RealmActivity {
  const sum = (of: (one: RealmActivity) => number): number =>
    same.reduce((total, one) => total + of(one), 0)
  const latest =
    same
      .map(({ HeldUntil }) => HeldUntil ?? '')
      .toSorted()
      .at(-1) ?? ''
  const metered = same.flatMap(({ Metered }) => (Metered === null ? [] : [Metered]))
  return {
    Realm: same[0]?.Realm ?? '',
    HeldUntil: latest === '' ? null : latest,
    Waiting: sum(({ Waiting }) => Waiting),
    LastSecond: sum(({ LastSecond }) => LastSecond),
    LastMinute: sum(({ LastMinute }) => LastMinute),
    Failed: sum(({ Failed }) => Failed),
    Metered: metered.length === 0 ? null : Math.max(...metered),
  }
}

export const mergeCalls = (replicas: readonly RealmCalls[]): RealmCalls['Calls'] =>
  replicas
    .flatMap(({ Calls }) => Calls)
    .toSorted((one, other) => other.At.localeCompare(one.At))
    .slice(0, MAX_CALLS)
