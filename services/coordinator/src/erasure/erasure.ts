import { hasCode } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import { deleteEntries } from '../entry/delete-entries.ts'
import type { Act } from '../run/action.ts'
import type { ErasableRun, ErasurePosition, Erasures, ErasureScope } from '../run/erasure.ts'
import { type Run, runKey } from '../run/run.ts'
import { firstRunsOf } from '../run/run-detail.ts'
import type { RunPage, RunPosition } from '../run/run-search.ts'
import { isWaitingForEventOrChange, WAITS_FOR_RESUME } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import type { RunActions } from '../worker/run-actions.ts'
import type { RemoveFilesOfRuns } from '../worker/run-files.ts'
import { setTimeout as sleep } from 'node:timers/promises'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { ABORTED, type StoreRetry } from '../worker/store-retry.ts'
import type { ErasureResult } from '@integration-host/shared/contracts/operations'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'

export interface ErasureDeps {
  readonly source: Erasures &
    Pick<TransactionSource, 'operate' | 'compact' | 'records' | 'runsOf' | 'search'>
  readonly cancel: RunActions['cancel']
  /** Deletes the undelivered webhooks of a company. Returns the ids of its webhook runs that must be cancelled. */
  readonly dropWebhooks: (realm: string) => Promise<readonly string[]>
  readonly removeFiles: RemoveFilesOfRuns
  /** Ends the pause of a company. Called after all of its runs were erased. */
  readonly endPause: (realm: string) => Promise<void>
  /** Whether this coordinator has loaded the process. Otherwise the files of its runs are unknown. */
  readonly isLoaded: (process: string) => boolean
  readonly log: Logger
}

/**
 * Erases the ended runs of a scope. With `cancelsWaiting`, first cancels those runs of a company that wait for an event, or
 * for the end of its pause, because nothing else may ever end them. Resolves soon after `signal` is aborted, even if not all runs are erased.
 */
export type Erase = (
  scope: ErasureScope,
  act: Pick<Act, 'by' | 'reason'>,
  signal: AbortSignal,
  cancelsWaiting?: boolean,
) => Promise<ErasureResult>

const PAGE = 200
/** The maximum number of passes over the runs, because an erasure must end even if further runs keep ending. */
const MAX_PASSES = 10

/**
 * Returns a function that erases runs page by page. A run can end, or be replayed, after a pass has read its page.
 * Therefore passes are repeated until a pass finds nothing to erase. `filesLeft` and `notEnded` are the counts of the
 * last pass.
 */
export function createErasure(deps: ErasureDeps): Erase {
  const { source, cancel, removeFiles, endPause, isLoaded, log } = deps

  /** Removes the files of runs. Returns the number of removed files, and the runs whose files are all removed. */
  async function removeFilesOf(runs: readonly ErasableRun[]) {
    const { count, failures } = await removeFiles(runs)
    for (const { run, error } of failures)
      log.error(
        { err: error, ...runKey(run) },
        'run was not erased because one of its files could not be removed',
      )
    const failed = new Set(failures.map(({ run }) => run))
    return { files: count, cleared: runs.filter((run) => !failed.has(run)) }
  }

  async function pass(...[scope, act, signal]: Parameters<Erase>) {
    const counts = { cleared: 0, erased: 0, files: 0, filesLeft: 0, notEnded: 0 }
    let after: ErasurePosition | null = null
    do {
      const page = await source.erasable(scope, { after, limit: PAGE })
      const { files, cleared } = await removeFilesOf(page.runs)
      counts.erased += await source.erase(
        cleared.map((run) => (isLoaded(run.Process) ? run : { ...run, filesLeft: true })),
        act,
      )
      counts.cleared += cleared.length
      counts.files += files
      counts.filesLeft += page.runs.length - cleared.length
      counts.notEnded += page.notEnded
      after = page.next
    } while (after !== null && !signal.aborted)
    return { ...counts, foundNothing: after === null && counts.cleared === 0 }
  }

  /** Drops the undelivered webhooks of a company, and cancels the runs that deliver them (E5). */
  async function dropWebhooks(realm: string, act: Parameters<Erase>[1]): Promise<void> {
    for (const id of await deps.dropWebhooks(realm))
      await source
        .operate('cancel', { name: WEBHOOK_PROCESS }, id, 0, { ...act, ifVersion: null })
        .catch((error: unknown) => {
          // The run has ended in the meantime.
          if (!hasCode(error, 'transaction_not_active')) throw error
        })
  }

  /** Cancels the runs of a company that wait for an event or for the end of its pause. Resolves with false if `signal` was aborted before. */
  async function cancelWaiting(
    { Realm, Process }: Extract<ErasureScope, { Realm: string }>,
    act: Parameters<Erase>[1],
    signal: AbortSignal,
  ): Promise<boolean> {
    const status = ['Waiting' as const, 'Undoing' as const]
    const filter = { realm: [Realm], status, children: true }
    const visible = { realms: ['*'], processes: ['*'] }
    let after: RunPosition | null = null
    do {
      const search = { process: Process, filter, order: 'created', visible, after } as const
      const page: RunPage = await source.search({ ...search, limit: PAGE })
      for (const run of page.runs.filter(waitsWithoutEnd))
        await cancel(run.Process, run.TransactionID, run.ReplayID, {
          ...act,
          ifVersion: run.Version,
        }).catch((error: unknown) => {
          // The run has received its event, or has ended, in the meantime.
          if (!hasCode(error, 'transaction_not_active') && !hasCode(error, 'version_moved'))
            throw error
        })
      after = page.next
    } while (after !== null && !signal.aborted)
    return after === null
  }

  return async (scope, act, signal, cancelsWaiting = false) => {
    const haveEnded = !cancelsWaiting || 'Ids' in scope || (await cancelWaiting(scope, act, signal))
    if (!('Ids' in scope) && (scope.Process ?? WEBHOOK_PROCESS) === WEBHOOK_PROCESS)
      await dropWebhooks(scope.Realm, act)
    let [erased, files, passes] = [0, 0, 0]
    let last
    do {
      last = await pass(scope, act, signal)
      erased += last.erased
      files += last.files
      passes += 1
    } while (!last.foundNothing && passes < MAX_PASSES && !signal.aborted)
    const company = 'Ids' in scope || scope.Process !== null ? null : scope.Realm
    if (company !== null) await deleteEntries(source, { realm: company })
    await source.compact()
    const ids = 'Ids' in scope ? [...new Set(scope.Ids)] : []
    const known = 'Ids' in scope ? await firstRunsOf(source, scope.Process, ids) : []
    const unknown = ids.length - known.length
    const { filesLeft, notEnded, foundNothing } = last
    if (company !== null && foundNothing && notEnded === 0) await endPause(company)
    return { erased, files, filesLeft, more: !foundNothing || !haveEnded, notEnded, unknown }
  }
}

const waitsWithoutEnd = (run: Pick<Run, 'Status' | 'WaitingFor'>): boolean =>
  isWaitingForEventOrChange(run) || run.WaitingFor?.startsWith(WAITS_FOR_RESUME) === true

/** The key id of erasures that the removal of a credential has caused. No service key can have this id. */
const KEY_ID = 'coordinator:credential-removed'

const RETRY_MS = 30_000

export interface RealmErasureDeps {
  readonly erase: Erase
  /** Removes what is stored about the company itself. */
  readonly forget: (realm: string) => Promise<void>
  readonly retryStore: StoreRetry
  readonly shutdown: AbortSignal
  readonly log: Logger
}

/**
 * Returns a function that erases the runs of a company whose credential was removed. The function resolves with false
 * if a shutdown has interrupted the erasure; the event is then delivered again.
 */
export function createRealmErasure(deps: RealmErasureDeps) {
  const { erase, retryStore, shutdown, log } = deps
  return async (credential: string): Promise<boolean> => {
    const scope = { Realm: realmOf(credential), Process: null }
    const reason = `${credential} was removed with erase=true`
    const act = { by: { keyId: KEY_ID, person: null }, reason }
    for (;;) {
      const result = await retryStore(async () => {
        await deps.forget(scope.Realm)
        return erase(scope, act, shutdown)
      }, shutdown).catch((error: unknown) => {
        log.error({ err: error, credential }, 'erasing the runs of a removed company failed')
        return null
      })
      if (result === ABORTED) return false
      if (result === null) {
        // The delivery stays unsettled until a retry succeeds. It is not requeued, because the broker drops a message
        // that is requeued too often.
        await sleep(RETRY_MS, null, { signal: shutdown }).catch(() => {})
        if (shutdown.aborted) return false
        continue
      }
      const { erased, files, filesLeft, more, notEnded } = result
      if (more && shutdown.aborted) return false
      if (!more && filesLeft + notEnded === 0)
        log.info({ credential, erased, files }, 'erased the runs of a removed company')
      else
        log.warn(
          { credential, erased, files, filesLeft, more, notEnded },
          'runs of a removed company keep their data; cancel its unfinished runs, then send POST /erasures',
        )
      return true
    }
  }
}
