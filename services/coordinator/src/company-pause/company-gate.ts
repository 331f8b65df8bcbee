/**
 * Applies the pauses of companies on this replica, and continues the runs of companies that were resumed.
 *
 * B1  A worker checks the pause after it has claimed a run and before it calls the step function. So a run of a paused
 *     company waits with `WaitingFor: "paused:<realm>"`, and is not claimed again until the company is resumed.
 * B2  Every replica reads the pauses once in less than a second. No broker is needed for that, and none can delay it.
 * B3  A replica that has read the pauses before a resume can let a run wait after the resume. It must do so under a lease.
 *     The runs of a resumed company are therefore continued until `DRAIN_MS` after the resume, on every replica.
 */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { WAITS_FOR_RESUME } from '../run/status.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'
import type { PausedNames } from '../worker/gate.ts'
import { startPolling } from '../worker/polling.ts'
import type { TransitionPublisher } from '../worker/transition-publisher.ts'
import { type CompanyPause, type CompanyPauses, isPaused } from './company-pauses.ts'

export interface CompanyGateDeps {
  readonly source: Pick<TransactionSource, 'wake'>
  readonly pauses: Pick<CompanyPauses, 'all' | 'now' | 'forget'>
  readonly publisher: Pick<TransitionPublisher, 'publishStep'>
  readonly setPaused: (realms: PausedNames) => void
  readonly log: Logger
  readonly clock: Clock
  readonly random: () => number
}

export interface CompanyGate extends AsyncDisposable {
  /** Reads the pauses now. When the promise has resolved, this replica starts no step of a paused company. */
  refresh(): Promise<void>
}

/** The pause between two reads of the pauses. With the time of a read and jitter it is less than a second. */
const READ_MS = 750
const DRAIN_MS = 2 * LEASE_MS
const WAKE_BATCH = 200

export function startCompanyGate(deps: CompanyGateDeps): CompanyGate {
  const { source, pauses, publisher, setPaused, log, clock, random } = deps
  const waking = createPendingWork()
  /** The resumed companies whose runs this replica is continuing. */
  const resuming = new Set<string>()
  let paused: ReadonlySet<string> = new Set()
  let isStopped = false

  async function read(): Promise<void> {
    const all = [...(await pauses.all())]
    paused = new Set(all.filter(([, pause]) => isPaused(pause)).map(([realm]) => realm))
    setPaused(paused)
    for (const [realm, pause] of all)
      if (!isPaused(pause) && !resuming.has(realm)) void waking.add(continueRuns(realm, pause))
  }

  async function continueRuns(realm: string, pause: CompanyPause): Promise<void> {
    resuming.add(realm)
    try {
      const isDrained = (await pauses.now()) - Date.parse(pause.ResumedAt ?? '') > DRAIN_MS
      let count
      do {
        const runs = await source.wake(WAITS_FOR_RESUME + realm, WAKE_BATCH)
        await Promise.all(runs.map((run) => publisher.publishStep(run)))
        count = runs.length
        // The company may have been paused once more meanwhile.
      } while (count === WAKE_BATCH && !paused.has(realm) && !isStopped)
      if (isDrained && count < WAKE_BATCH) await pauses.forget(realm, pause)
    } catch (error) {
      log.debug({ err: error }, 'continuing the runs of a resumed company failed; it is repeated')
    } finally {
      resuming.delete(realm)
    }
  }

  /** Reads are made one after the other, so that an earlier read never overwrites a later one. */
  let reading: Promise<void> = Promise.resolve()
  const refresh = (): Promise<void> => (reading = reading.then(read, read))
  const polling = startPolling({
    task: 'pauses of companies',
    intervalMs: READ_MS,
    log,
    clock,
    random,
    async poll() {
      await refresh()
      return true
    },
  })
  return {
    refresh,
    async [Symbol.asyncDispose]() {
      isStopped = true
      await polling[Symbol.asyncDispose]()
      await waking.ended()
    },
  }
}
