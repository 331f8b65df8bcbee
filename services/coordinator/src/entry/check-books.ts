/** Decides whether the books of a company are ready to be closed for a period. */
import type { BooksView } from '@integration-host/shared/contracts/company'
import { providerEntities } from '@integration-host/shared/contracts/provider-event'
import type { EntryCount } from './book-entry.ts'

type Counts = Pick<BooksView, 'Runs' | 'Entries'>

/** Counts entries by what is known of their objects. */
export function entryCountsOf(counts: readonly EntryCount[]): BooksView['Entries'] {
  const isInFeed = (entity: string): boolean =>
    (providerEntities as readonly string[]).includes(entity)
  const total = (matches: (count: EntryCount) => boolean): number =>
    counts.filter(matches).reduce((sum, { Count }) => sum + Count, 0)
  const of = (state: string): number => total(({ State }) => State === state)
  return {
    Verified: of('Verified'),
    Unverified: total(({ State, Entity }) => State === 'Recorded' && isInFeed(Entity)),
    Unprovable:
      of('Unproven') + total(({ State, Entity }) => State === 'Recorded' && !isInFeed(Entity)),
    Changed: of('ChangedOutside'),
    Voided: of('Voided'),
    Deleted: of('Deleted'),
    Missing: of('Missing'),
  }
}

/** Returns whether nothing is left to do or to look at, and says it in a sentence. */
export function readiness({ Runs, Entries }: Counts): Pick<BooksView, 'Ready' | 'Sentence'> {
  const left = [
    counted(Runs.Unfinished, 'run is', 'runs are', 'unfinished'),
    counted(Runs.Failed, 'run has', 'runs have', 'failed'),
    counted(Runs.InDoubt, 'run is', 'runs are', 'in doubt'),
    counted(Entries.Unverified, 'entry is', 'entries are', 'not verified yet'),
    counted(Entries.Changed, 'entry was', 'entries were', 'changed'),
    counted(Entries.Voided, 'entry was', 'entries were', 'voided'),
    counted(Entries.Deleted, 'entry was', 'entries were', 'deleted'),
    counted(Entries.Missing, 'entry is', 'entries are', 'missing'),
  ].filter((text) => text !== '')
  const verified =
    counted(Entries.Verified, 'entry is', 'entries are', 'verified') || 'no entry is verified'
  return left.length === 0
    ? { Ready: true, Sentence: `ready to close: ${verified}` }
    : { Ready: false, Sentence: `not ready to close: ${left.join(', ')}; ${verified}` }
}

const counted = (count: number, one: string, several: string, what: string): string =>
  count === 0 ? '' : `${count} ${count === 1 ? one : several} ${what}`
