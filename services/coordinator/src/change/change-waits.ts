/**
 * The store of the objects for whose changes runs wait: one row for each run and object. The row is stored before the
 * run becomes `Waiting`, so that no change in between is missed. A row outlives a wait that ended in another way, such
 * as a cancel, until the object changes again, its company is erased, or the retention looks once a day.
 */
import { createHash } from 'node:crypto'
import { installation, type InstallationRow } from '../records/installation.ts'
import { changeRow } from '../records/records.ts'
import type { RunKey } from '../run/run.ts'
import { ONLY_RUN } from '../run/run-detail.ts'
import { goesForward } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { WatchedObject } from '../run/events.ts'

/** A run that waits for a change of an object. */
export interface ChangeWait extends RunKey {
  readonly Place: string
  /** The version of the run when it began to wait. A run that waits once more has another one. */
  readonly Version: number
}
export type ChangeWaitRow = InstallationRow<ChangeWait>

const PREFIX = 'change:'
const PAGE = 200
const ofRealm = (realm: string): string => `${PREFIX}${realm}/`
const ofObject = ({ realm, entity, id }: WatchedObject): string =>
  `${ofRealm(realm)}${entity}-${id}/`
/** Returns a text of constant length, so that no name of a row is the beginning of another one. */
const hashOf = ({ Process, TransactionID, ReplayID }: RunKey, place: string): string =>
  createHash('sha256')
    .update(JSON.stringify([Process, TransactionID, ReplayID, place]))
    .digest('hex')
    .slice(0, 32)

export type ChangeWaits = ReturnType<typeof createChangeWaits>

export function createChangeWaits(source: Pick<TransactionSource, 'records' | 'get'>) {
  const records = source.records(installation<ChangeWait>(PREFIX))
  /** Returns at most `limit` rows whose names begin with `beginning`, after the row of the name `after`. */
  async function page(
    beginning: string,
    after = beginning,
    limit = PAGE,
  ): Promise<readonly ChangeWaitRow[]> {
    const rows = await records.page({ by: ['Name'], after: [after], limit })
    const end = rows.findIndex(({ Name }) => !Name.startsWith(beginning))
    return end === -1 ? rows : rows.slice(0, end)
  }
  return {
    /** Stores that a run waits for a change of the object. Resolves with a text that identifies run and place. */
    async begin(object: WatchedObject, wait: ChangeWait): Promise<string> {
      const hash = hashOf(wait, wait.Place)
      const Name = `${ofObject(object)}${wait.Process}/${hash}`
      await changeRow(records, [Name], () => ({ Name, Value: wait }))
      return hash
    },
    /** Returns the runs that wait for the object, a page at a time. */
    async *of(object: WatchedObject): AsyncGenerator<ChangeWaitRow> {
      const beginning = ofObject(object)
      for (let after: string | undefined; ;) {
        const rows = await page(beginning, after)
        yield* rows
        if (rows.length < PAGE) return
        after = rows.at(-1)?.Name
      }
    },
    /** Returns whether a run of this process waits for the object. */
    hasWait: async (object: WatchedObject, process: string): Promise<boolean> =>
      (await page(`${ofObject(object)}${process}/`, undefined, 1)).length > 0,
    /** Returns whether a run waits for any object of the company. */
    hasAny: async (realm: string): Promise<boolean> =>
      (await page(ofRealm(realm), undefined, 1)).length > 0,
    /** Removes a wait, unless the run has begun to wait once more. */
    end: async (row: ChangeWaitRow): Promise<void> => {
      await records.replace(row, undefined)
    },
    /** Removes the waits of runs that have ended, or do not wait at this place any more. */
    async removeEnded(signal: AbortSignal): Promise<void> {
      for (let after: string | undefined; !signal.aborted;) {
        const rows = await page(PREFIX, after)
        for (const row of rows) {
          const { Process, TransactionID, ReplayID, Place } = row.Value
          const found = await source.get(Process, TransactionID, ReplayID, ONLY_RUN)
          const mayWait = found?.run.StepName === Place && goesForward(found.run.Status)
          if (!mayWait) await records.replace(row, undefined)
        }
        if (rows.length < PAGE) return
        after = rows.at(-1)?.Name
      }
    },
    /** Removes all waits for objects of a company. */
    async removeRealm(realm: string): Promise<void> {
      for (;;) {
        const rows = await page(ofRealm(realm))
        for (const row of rows) await records.replace(row, undefined)
        if (rows.length < PAGE) return
      }
    },
  }
}
