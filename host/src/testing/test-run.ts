import { AssertionError } from 'node:assert'
import type { Json, LinkOptions } from '@integration-host/coordinator/api'
import { idempotencyKey, isFinished } from '@integration-host/coordinator/item'
import type { CreateDecisionLink } from '@integration-host/shared/contracts/decision'
import type { RunDetailResponse } from '@integration-host/shared/contracts/run'

/** A run as the HTTP interface of the coordinator shows it. */
export type RunView = Readonly<RunDetailResponse>

/** The status of a run. */
export type RunStatus = RunView['Status']

/** A run of a transaction. Its members show the state after the last `run`, `advance` or action of the test host. */
export interface TestRun {
  readonly process: string
  readonly id: string
  readonly replayId: number
  readonly status: RunStatus
  /** The step that is due or in progress, or the last step of a run that has ended. */
  readonly step: string
  /** The number of attempts of the step `step`, without the attempts that do not count, such as those after a 429. */
  readonly attempt: number
  /** The last error; `null` if there is none. */
  readonly error: string | null
  readonly errorClass: string | null
  /** Whether the step is in doubt: an earlier attempt may have taken effect. */
  readonly isInDoubt: boolean
  /** Whether retention has removed the data of the run. */
  readonly isPurged: boolean
  /** Everything that the coordinator shows about the run: header, items and attempts. */
  readonly view: RunView
  /** Returns the data of a finished step; `null` if it was skipped. @throws {AssertionError} the step is not finished. */
  data(step: string): Json
  /** Returns the idempotency key that the calls of a step send, in round 0 or in another round. */
  key(step: string, round?: number): string
  /** @throws {AssertionError} if the run has another status. The message has the last error of the run. */
  toHaveStatus(status: RunStatus): void
  /** Starts the next run of the transaction. */
  replay(options?: { readonly fromStep?: string }): Promise<TestRun>
  /** Makes a run due at once that waits for its next attempt, or for an operator. */
  retry(): Promise<void>
  /** Continues a failed or cancelled run, or an undo that has failed. */
  resume(): Promise<void>
  /** Undoes the finished steps of a failed, cancelled or completed run, the last one first. */
  undo(): Promise<void>
  cancel(): Promise<void>
  /**
   * Sends an event to the run, and runs what is due then.
   *
   * @throws {Error} the coordinator rejects the event, for example because the run has received another one.
   */
  signal(name: string, data?: unknown): Promise<void>
  /** Returns the address of the page on which a person decides about an event that has `ask`. */
  link(name: string, options: LinkOptions): Promise<string>
}

export interface RunActions {
  readonly act: (
    run: TestRun,
    action: 'resume' | 'retry' | 'undo' | 'cancel' | 'replays' | `events/${string}`,
    body?: object,
  ) => Promise<TestRun>
  readonly createLink: (run: TestRun, name: string, body: CreateDecisionLink) => Promise<string>
}

/** A test run. The host replaces its member `view` whenever the host has read the run again. */
export interface RefreshedRun extends TestRun {
  view: RunView
}

export function createTestRun(view: RunView, { act, createLink }: RunActions): RefreshedRun {
  const run: RefreshedRun = {
    view,
    process: view.Process,
    id: view.TransactionID,
    replayId: view.ReplayID,
    get status() {
      return run.view.Status
    },
    get step() {
      return run.view.StepName
    },
    get attempt() {
      return run.view.Attempt
    },
    get error() {
      return run.view.LastError
    },
    get errorClass() {
      return run.view.ErrorClass
    },
    get isInDoubt() {
      return run.view.InDoubt
    },
    get isPurged() {
      return run.view.PurgedAt !== null
    },
    data(step) {
      const item = run.view.Items.find(({ StepName }) => StepName === step)
      if (item !== undefined && isFinished(item)) return item.Data
      throw new AssertionError({
        message: `the step ${step} of ${nameOf(run)} is not completed: ${stateOf(run)}`,
      })
    },
    key: (step, round) => idempotencyKey(run.view, step, round),
    toHaveStatus(status) {
      if (run.status === status) return
      throw new AssertionError({
        message: `expected ${nameOf(run)} to be ${status}, but it is ${stateOf(run)}`,
        actual: run.status,
        expected: status,
        operator: 'toHaveStatus',
      })
    },
    replay: ({ fromStep } = {}) => act(run, 'replays', fromStep === undefined ? {} : { fromStep }),
    retry: async () => void (await act(run, 'retry')),
    resume: async () => void (await act(run, 'resume')),
    undo: async () => void (await act(run, 'undo')),
    cancel: async () => void (await act(run, 'cancel')),
    signal: async (name, data = null) =>
      void (await act(run, `events/${encodeURIComponent(name)}`, { Data: data })),
    link: (name, { for: person, expiresInSeconds }) =>
      createLink(run, name, {
        For: person,
        ...(expiresInSeconds !== undefined && { ExpiresInSeconds: expiresInSeconds }),
      }),
  }
  return run
}

const nameOf = ({ process, id, replayId }: TestRun): string =>
  `${process} ${id}${replayId === 0 ? '' : ` (replay ${replayId})`}`

function stateOf({ status, step, attempt, error, view }: TestRun): string {
  const due = view.NextAttemptAt === null ? '' : `, due at ${view.NextAttemptAt}`
  const where = `${status} at step ${step}, attempt ${attempt}${due}`
  return error === null ? where : `${where}: ${error}`
}
