/**
 * Plans a run of `npm run test:cluster`: which faults are caused with which seeds, and which faults share a cluster.
 */
import type { Fault } from './faults.ts'
import type { PlannedRound } from './run.ts'

const MAX_SEEDS = 100

/**
 * Returns the seeds of the argument `--seed`, which is one number or a range such as `1-5`; `null` if the text has
 * another form.
 */
export function parseSeeds(text: string): readonly number[] | null {
  const { first = '', last = first } =
    /^(?<first>\d{1,9})(?:-(?<last>\d{1,9}))?$/.exec(text)?.groups ?? {}
  const length = Number(last) - Number(first) + 1
  if (first === '' || length < 1 || length > MAX_SEEDS) return null
  return Array.from({ length }, (_, index) => Number(first) + index)
}

/**
 * Plans the rounds of a run. A round is one fault with one seed, and every fault is combined with every seed. Returns
 * one list of rounds for each cluster that is started. A round whose fault upgrades from the first release starts a
 * new cluster. Every other round uses the cluster of the previous round.
 */
export function planClusters(
  chosen: readonly Fault[],
  seeds: readonly number[],
): readonly (readonly PlannedRound[])[] {
  const ordered = chosen.toSorted(
    (a, b) => Number(b.startsOn === 'first release') - Number(a.startsOn === 'first release'),
  )
  const clusters: PlannedRound[][] = []
  for (const seed of seeds)
    for (const fault of ordered) {
      const cluster = clusters.at(-1)
      if (cluster === undefined || fault.startsOn === 'first release')
        clusters.push([{ fault, seed }])
      else cluster.push({ fault, seed })
    }
  return clusters
}
