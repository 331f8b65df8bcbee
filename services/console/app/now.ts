/**
 * The data of the page Now. All pages take the numbers of runs from this data, so that all pages show the same numbers.
 */
import { useQuery } from '@tanstack/react-query'
import type { NowView, RunCounts } from '../src/contracts/now.ts'
import { readState } from './live.ts'

/** Returns the state of the installation, which the event stream keeps current; `undefined` until it was read. */
export const useNow = (): NowView | undefined =>
  useQuery({ queryKey: ['now'], queryFn: ({ client }) => readState<NowView>('now', client) }).data

/** Returns the numbers of runs of a process, or of all processes; `undefined` before the coordinator has counted. */
export function useRunCounts(process: string | null): RunCounts | undefined {
  const now = useNow()
  return process === null
    ? (now?.Runs ?? undefined)
    : now?.RunsOf.find(({ Process }) => Process === process)
}

/** Returns how many conditions need a person soon. The others are only noted. */
export const urgentCount = ({ Conditions }: NowView): number =>
  Conditions.filter(({ Severity }) => Severity !== 'info').length
