import type { TransactionSource } from '../run/transaction-source.ts'
import { ENTRIES } from './book-entry.ts'

/** Which object an earlier run of the company has created. */
export interface EntryQuery {
  readonly realm: string
  readonly entity: string
  readonly process: string
  readonly transaction: string
  readonly step?: string | undefined
}

export type FoundEntry =
  | { readonly id: string }
  | { readonly errorClass: 'entry_not_found' | 'entry_ambiguous'; readonly error: string }

const MAX_ENTRIES = 500

/** Returns the object that the latest run of a transaction has created which has created one of this entity. */
export async function recordedEntry(
  source: Pick<TransactionSource, 'records'>,
  { realm, entity, process, transaction, step }: EntryQuery,
): Promise<FoundEntry> {
  const found = await source.records(ENTRIES).page({
    where: {
      Process: process,
      TransactionID: transaction,
      Realm: realm,
      Entity: entity,
      Operation: 'create',
      ...(step !== undefined && { StepName: step }),
    },
    by: ['RecordedAt', 'EntryID'],
    isNewestFirst: true,
    limit: MAX_ENTRIES,
  })
  const latest = Math.max(...found.map(({ ReplayID }) => ReplayID))
  const [newest, ...others] = found.filter(({ ReplayID }) => ReplayID === latest)
  const run = `${process}/${transaction}`
  if (newest === undefined) {
    const by = step === undefined ? '' : ` in the step ${step}`
    const error = `no run of ${run} has created an object of the kind ${entity}${by}`
    return { errorClass: 'entry_not_found', error }
  }
  if (others.length > 0 && step === undefined) {
    const steps = [...new Set([newest, ...others].map(({ StepName }) => StepName))].join(', ')
    const error = `${run}, replay ${latest}, has created ${others.length + 1} objects of the kind ${entity}, in: ${steps}; name the step`
    return { errorClass: 'entry_ambiguous', error }
  }
  return { id: newest.EntityID }
}
