import type { RunSearch, Visibility } from '../src/run/run-search.ts'

export const EVERYTHING: Visibility = { realms: ['*'], processes: ['*'] }

/** Returns a search for the runs of a process, newest first, by a caller who may see everything. */
export const aSearch = (process: string | null, changes: Partial<RunSearch> = {}): RunSearch => ({
  process,
  filter: {},
  order: 'created',
  visible: EVERYTHING,
  after: null,
  limit: 500,
  ...changes,
})
