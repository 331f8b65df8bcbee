/**
 * The pulls find work that no message speaks of. They publish and never run a step: there is one way into a
 * step, the claim.
 *
 * Local (15 s, and at once when the source hints at inserted rows): rows that should have been picked up by
 * now, each ever more spaced, and only for steps whose queue is short: a long queue means slow workers, not
 * lost messages, and more messages would not help. Runs at a step that their process no longer has are failed,
 * with the reason, instead of waiting for nobody.
 * Remote (60 s): rows of coordinators that are gone, pauses that another replica was told of, and an audit.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { TransactionID } from '@integration-host/shared/contracts/transaction'
import { hasCode } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/logger'
import type { ProcessDefinition } from '../process/definition.ts'
import type { Run } from '../transaction/run.ts'
import type { Audit, StepRef, TransactionSource } from '../transaction/transaction-source.ts'
import type { TransitionPublisher } from './transition-publisher.ts'
import { outlineOf, type Worker } from './worker.ts'
import type { StepQueue } from './step-queue.ts'

export interface PullDeps {
  readonly source: TransactionSource
  readonly queue: StepQueue
  readonly publisher: TransitionPublisher
  readonly worker: Worker
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  readonly log: Logger
  readonly random: () => number
  readonly localMs: number
  readonly remoteMs: number
  readonly prefetch: number
  readonly onAudit: (audit: Audit) => Promise<void>
  /** So many messages were sent for runs that should have been picked up. */
  readonly onSweep: (count: number) => void
  /** So many runs were taken over from coordinators that are gone. */
  readonly onAdopt: (count: number) => void
}

const GROUP = 500
/** The most that one tick sends; the rest follows when the queues are short again. */
const MAX_GROUPS = 10
/** From a hint of the source to the pull: what is inserted in that time comes with it. */
const HINT_MS = 50

export function startPulls(deps: PullDeps): AsyncDisposable {
  const { source, queue, publisher, worker, processes, log } = deps
  const leaving = new AbortController()
  /** Ends the pause before the next local pull. */
  let hint = new AbortController()
  let hinted: NodeJS.Timeout | null = null
  source.watch(() => {
    hinted ??= setTimeout(() => {
      hinted = null
      hint.abort()
    }, HINT_MS).unref()
  })
  const untilHint = (): AbortSignal => {
    hint = new AbortController()
    return AbortSignal.any([hint.signal, leaving.signal])
  }

  /** The steps whose rows are worth a message now. */
  async function shortQueues(): Promise<StepRef[]> {
    const found: StepRef[] = []
    for (const { name, stepNames } of processes.values()) {
      if (!worker.isConsuming(name)) continue
      for (const step of stepNames) {
        const waiting = await queue.waiting(name, step)
        if (waiting !== null && waiting <= 2 * deps.prefetch)
          found.push({ process: name, step, isFirst: step === stepNames[0] })
      }
    }
    return found
  }

  /** Whether rows were left behind that nobody looked at since. */
  let isMoreDue = false

  /**
   * False when it should be done again soon: there was more than a tick sends, or nothing could be looked at,
   * because no process runs now or the broker is away.
   */
  async function local(): Promise<boolean> {
    const steps = await shortQueues()
    if (steps.length === 0) return false
    let isCapped = true
    for (let group = 0; group < MAX_GROUPS && isCapped; group += 1) {
      const runs = await source.due(steps, GROUP)
      await Promise.all(runs.map(send))
      if (runs.length > 0) {
        log.info({ count: runs.length }, 'local pull sent steps again')
        deps.onSweep(runs.length)
      }
      isCapped = runs.length === GROUP
    }
    await refuseMisplaced()
    const all = [...processes.values()].reduce((sum, { stepNames }) => sum + stepNames.length, 0)
    isMoreDue = isCapped || (isMoreDue && steps.length < all)
    return !isMoreDue
  }

  /** Fails what is due at a step that was taken out of its process. */
  async function refuseMisplaced(): Promise<void> {
    const running = [...processes.values()].filter(({ name }) => worker.isConsuming(name))
    const taken = new Map<string, boolean>()
    for (const run of await source.runsAtUnknownStep(running.map(outlineOf), GROUP)) {
      const { Process, StepName, Version } = run
      const where = `${Process}.${StepName}`
      if (!taken.has(where)) taken.set(where, await isTaken(Process, StepName))
      if (taken.get(where) === true) continue
      const error = `the process has no step ${StepName} any more; resume the run once it has it again`
      const refused = await source.failRun(run, Version, 'step_unknown', error)
      if (refused === null) continue
      log.warn({ process: Process, step: StepName }, 'refused a run at an unknown step')
      publisher.tell(refused)
    }
  }

  /** Whether some coordinator takes this step: while two versions of a process run side by side, one may. */
  async function isTaken(process: string, step: string): Promise<boolean> {
    const consumers = await queue.consumers(process, step)
    if (consumers !== null) return consumers > 0
    // No such queue, which nobody can take from; or the broker is away, which says nothing.
    const first = processes.get(process)?.stepNames[0]
    return first === undefined || (await queue.waiting(process, first)) === null
  }

  async function send(run: Run): Promise<void> {
    // A row somebody inserted: no message could name it, so nobody could ever run it.
    if (!TransactionID.safeParse(run.TransactionID).success) {
      const refused = await source.failRun(
        run,
        run.Version,
        'transaction_id_invalid',
        'TransactionID must have 1 to 128 characters, none of them a control character',
      )
      if (refused !== null) publisher.tell(refused)
      return
    }
    await publisher.remind(run)
  }

  async function remote(): Promise<boolean> {
    worker.setPaused(await source.paused())
    for (let group = 0; group < MAX_GROUPS; group += 1) {
      const adopted = await source.recoverExpiredLeases(GROUP)
      if (adopted.length > 0) {
        log.warn({ count: adopted.length }, 'adopted runs of a lost coordinator')
        deps.onAdopt(adopted.length)
      }
      await Promise.all(adopted.map((run) => publisher.announce(run)))
      if (adopted.length < GROUP) break
    }
    const audit = await source.audit([...processes.keys()])
    await deps.onAudit(audit)
    const isOk = Object.values(audit.violations).every((count) => count === 0)
    if (!isOk) log.error({ violations: audit.violations }, 'the books are out of balance')
    return true
  }

  async function repeat(
    name: string,
    intervalMs: number,
    pull: () => Promise<boolean>,
    pause: () => AbortSignal = () => leaving.signal,
  ): Promise<void> {
    while (!leaving.signal.aborted) {
      let isDone = false
      const signal = pause()
      try {
        isDone = await pull()
      } catch (error) {
        if (hasCode(error, 'store_unavailable'))
          log.debug({ pull: name }, 'pull waits for the store')
        else log.error({ err: error, pull: name }, 'pull failed')
      }
      // Replicas must not pull in step. What is away is asked again soon.
      const ms = (isDone ? intervalMs : Math.min(500, intervalMs)) * (0.9 + deps.random() * 0.2)
      await sleep(ms, null, { signal }).catch(() => {})
    }
  }

  const pulling = Promise.all([
    repeat('local', deps.localMs, local, untilHint),
    repeat('remote', deps.remoteMs, remote),
  ])
  return {
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await pulling
    },
  }
}
