import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { entryOf } from '../../run/action.ts'
import type { ErasurePosition, Erasures, ErasureScope } from '../../run/erasure.ts'
import { type Run, runKey } from '../../run/run.ts'
import { isOver } from '../../run/status.ts'
import { erased } from '../../run/transitions.ts'
import { REMOVAL_WEBHOOK } from '../../webhook/webhook.ts'
import { erasedEntries } from './entries.ts'
import { filesLeftOf } from './retention.ts'
import type { MemoryStore } from './store.ts'

/** Erases runs of the memory source. `now` returns epoch ms. */
export function createMemoryErasures(
  {
    table,
    log,
    webhooks,
    records,
    commit,
  }: Pick<MemoryStore, 'table' | 'log' | 'webhooks' | 'records' | 'commit'>,
  { now, leaseMs }: { readonly now: () => number; readonly leaseMs: number },
): Erasures {
  const isErasable = ({ ErasedAt, PurgedAt }: Run): boolean =>
    ErasedAt === null && PurgedAt === null
  const hasEnded = ({ Status, InDoubt, CompletedAt }: Run): boolean =>
    isOver(Status) &&
    !(
      (Status === 'Cancelled' || Status === 'UndoFailed') &&
      InDoubt &&
      Date.parse(CompletedAt ?? '') > now() - leaseMs
    )
  return {
    async erasable(scope, { after, limit }) {
      const isInScope = scopeTest(scope, table)
      const page = table
        .all()
        .map(({ header }) => header)
        .filter((header) => isErasable(header) && isInScope(header) && !isActiveRemoval(header))
        .filter((header) => after === null || compare(header, after) > 0)
        .toSorted(compare)
        .slice(0, limit)
      const ended = page.filter(hasEnded)
      const last = page.at(-1)
      return {
        runs: ended.map(({ Version, ...header }) => ({ ...runKey(header), Version })),
        notEnded: page.length - ended.length,
        next:
          last === undefined || page.length < limit
            ? null
            : { ...runKey(last), CreatedAt: last.CreatedAt },
      }
    },
    async erase(runs, act) {
      const entries = runs
        .map(({ Version, filesLeft, ...key }) => ({ stored: table.get(key), Version, filesLeft }))
        .flatMap(({ stored, Version, filesLeft }) =>
          stored !== undefined && isErasable(stored.header) && stored.header.Version === Version
            ? [{ stored, filesLeft }]
            : [],
        )
        .map(({ stored, filesLeft }) => ({
          run: erased(stored, now()),
          records: [
            ...erasedEntries(records, stored.header),
            ...(filesLeft === true ? [filesLeftOf(stored.header)] : []),
          ],
          action: log.next(entryOf('erase', act, stored.header, { now: now() })),
        }))
      await commit(...entries)
      return entries.length
    },
    async dropWebhooks(realm) {
      const dropped = webhooks
        .all()
        .filter(
          ({ Realm, TransactionID: id }) => Realm === realm && !id.startsWith(REMOVAL_WEBHOOK),
        )
      await commit(...dropped.map(({ TransactionID }) => ({ delivered: TransactionID })))
      return table
        .all()
        .map(({ header }) => header)
        .filter(
          (header) =>
            header.Process === WEBHOOK_PROCESS &&
            header.Realm === realm &&
            !isOver(header.Status) &&
            !isActiveRemoval(header),
        )
        .map(({ TransactionID }) => TransactionID)
    },
    async realmsOf(process, ids) {
      const found = [...new Set(ids)].map((id) => table.runsOf(process, id))
      return {
        realms: [...new Set(found.flat().map(({ header }) => header.Realm))],
        unknown: found.filter((runs) => runs.length === 0).length,
      }
    },
  }
}

/** Whether the run still has to deliver a webhook that reports the removal of a credential. */
const isActiveRemoval = ({ Process, TransactionID, Status }: Run): boolean =>
  Process === WEBHOOK_PROCESS && TransactionID.startsWith(REMOVAL_WEBHOOK) && !isOver(Status)

function scopeTest(scope: ErasureScope, table: Pick<MemoryStore['table'], 'get'>) {
  if (!('Ids' in scope))
    return ({ Process, Realm }: Run): boolean =>
      Realm === scope.Realm && (scope.Process === null || Process === scope.Process)
  const ids = new Set(scope.Ids)
  // A transaction is erased with its children, and with theirs.
  const isInScope = ({ Process, TransactionID, Parent }: Run): boolean => {
    if (Process === scope.Process && ids.has(TransactionID)) return true
    const parent = Parent === undefined ? undefined : table.get(Parent)
    return parent !== undefined && isInScope(parent.header)
  }
  return isInScope
}

const text = ({ CreatedAt, Process, TransactionID }: ErasurePosition): string =>
  JSON.stringify([CreatedAt, Process, TransactionID])

/**
 * Orders runs by time. Any stable total order would do, because the order is used only to split the runs into pages.
 */
function compare(a: ErasurePosition, b: ErasurePosition): number {
  const [left, right] = [text(a), text(b)]
  return left === right ? a.ReplayID - b.ReplayID : left < right ? -1 : 1
}
