/** What is known of a run when it enters a step, and whether the step is skipped. */
import { namesInstead } from '@integration-host/shared/similar-name'
import { EVENT_TIMEOUT } from '../run/events.ts'
import type { FinishedItem } from '../run/item.ts'
import type { Claim } from '../run/transaction-source.ts'
import type { StepOutcome } from '../run/progress.ts'
import type { ProcessDefinition } from './definition.ts'
import { shortRedacted } from './redacted-step.ts'
import type { AnyStep, Entered, ItemOutcome, ProcessSettings, StepItem } from './step.ts'
import { thrownText } from './thrown-text.ts'
import type { StepLog } from './redaction.ts'
import type { StepAbort } from './step-abort.ts'

/** The properties of a process that are needed to run its steps. */
export type StepProcess = Pick<ProcessDefinition, 'stepNames' | 'input' | 'bound'>

export interface EnteredStep {
  readonly process: StepProcess
  readonly claim: Claim
  /** The name of the previous step. */
  readonly before: string | undefined
  /** The result of the `input` schema of the process for the initial data. */
  readonly initialData: unknown
}

/** Returns the members of a step that only read its run. */
export function enteredMembers(
  { process, claim, before, initialData }: EnteredStep,
  settings: ProcessSettings,
): Entered<unknown, AnyStep | null> {
  const { run } = claim
  const item = (name: string): StepItem => {
    const found = finishedItem(claim, name)
    if (found === undefined) {
      const finished = claim.items.map(({ StepName }) => StepName)
      const others = namesInstead(name, finished, 'finished items')
      throw new TypeError(`this run has no finished item ${name}${others}`)
    }
    return {
      name,
      TransactionID: run.TransactionID,
      ReplayID: run.ReplayID,
      ResponseBody: found.ResponseBody,
      responseStatus: found.ResponseStatus,
      data: found.Data,
      outcome: outcomeOf(found),
    }
  }
  return {
    process: run.Process,
    name: run.StepName,
    transactionId: run.TransactionID,
    replayId: run.ReplayID,
    isReplay: run.ReplayID > 0,
    version: run.DefinitionVersion,
    realm: run.Realm,
    initialData,
    previous: before === undefined ? null : item(before),
    item,
    settings: settingsOf(process, settings),
  }
}

/** Returns the outcome of a step whose run fails because of what the process wrote for it, such as `when`. */
export const placeFailed = ({ process }: EnteredStep, error: string): StepOutcome => ({
  kind: 'failed',
  errorClass: 'step_threw',
  error: shortRedacted(process, error),
  response: null,
})

/**
 * Calls `when`. Returns the outcome of the step if it does not run: it is skipped, or its run fails. Returns `null` if the
 * step runs.
 */
export function outcomeOfWhen(
  when: (entered: never) => boolean,
  entered: EnteredStep,
  settings: ProcessSettings,
): StepOutcome | null {
  try {
    const runs = (when as (given: unknown) => unknown)(enteredMembers(entered, settings))
    if (typeof runs === 'boolean') return runs ? null : { kind: 'skipped' }
    if (runs instanceof Promise) runs.catch(() => {})
    return placeFailed(entered, 'when must return true or false, and not a promise')
  } catch (error) {
    return placeFailed(entered, `when: ${thrownText(error)}`)
  }
}

export const finishedItem = ({ items }: Claim, name: string): FinishedItem | undefined =>
  items.find(({ StepName }) => StepName === name)

const outcomeOf = ({ Status, Error: error }: FinishedItem): ItemOutcome =>
  Status === 'Skipped' ? 'skipped' : error === EVENT_TIMEOUT ? 'timed_out' : 'completed'

/** Returns the settings of the installation and of the process. Nothing is copied if the process has no settings. */
const settingsOf = ({ bound }: StepProcess, settings: ProcessSettings): ProcessSettings =>
  bound?.hasValues === true ? { ...settings, ...bound.values } : settings

/** The members of a step whose value is created only if it is read, because most steps read neither. */
export interface LazyMembers {
  readonly signal: AbortSignal
  readonly log: StepLog
}

export interface LazySources {
  readonly abort: StepAbort
  readonly log: () => StepLog
}

const SOURCES = Symbol('sources of the lazy members')
interface WithSources {
  [SOURCES]?: LazySources
}

/**
 * Adds `signal` and `log` to the step and returns it. Two getters in the object literal of the step would do the same.
 *
 * All steps share these two accessors, because V8 stores an object whose accessors are functions of its own as a hash
 * table, which takes three times as long to create and 1.5 KB of memory for each step, and allocates getters of a literal
 * in the old generation (docs/adr/0048). `Object.defineProperties` would take twice as long as the two calls.
 */
export function withLazyMembers<Members extends object>(
  members: Members,
  sources: LazySources,
): Members & LazyMembers {
  ;(members as WithSources)[SOURCES] = sources
  Object.defineProperty(members, 'signal', accessors.signal)
  return Object.defineProperty(members, 'log', accessors.log) as Members & LazyMembers
}

const accessors = {
  signal: {
    enumerable: true,
    configurable: true,
    get(this: WithSources) {
      return this[SOURCES]?.abort.signal
    },
  },
  log: {
    enumerable: true,
    configurable: true,
    get(this: WithSources) {
      return this[SOURCES]?.log()
    },
  },
}
