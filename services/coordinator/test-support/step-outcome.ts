/** Runs one step on a claim, without a coordinator. */
import { createLogger } from '@integration-host/shared/observability/logger'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
import { intuit } from '@integration-host/shared/provider-profile/intuit'
import type { Marks } from '../src/entry/marks.ts'
import { createMemoryTargetCalls } from '../src/adapters/memory/target-calls.ts'
import { createCoolDowns } from '../src/step/cool-downs.ts'
import { processOf } from './process-of.ts'
import type { CallOutcome, CallRequest } from '../src/step/http-call.ts'
import type { StepProcess } from '../src/step/entered.ts'
import type { StepDeps } from '../src/step/perform-step.ts'
import { runStep } from '../src/step/run-step.ts'
import { StepAbort } from '../src/step/step-abort.ts'
import type { AnyStep } from '../src/step/step.ts'
import { createTargetLimiter } from '../src/step/target-limiter.ts'
import type { Round } from '../src/run/item.ts'
import type { Claim } from '../src/run/transaction-source.ts'
import { claimedRun } from './claimed-run.ts'

const claim: Claim = {
  lease: {
    Process: 'P',
    TransactionID: 'a/b',
    ReplayID: 2,
    step: 'second',
    version: 3,
    owner: 'me',
    attempt: 4,
    startedAt: '',
  },
  run: claimedRun({
    TransactionID: 'a/b',
    ReplayID: 2,
    StepName: 'second',
    InitialData: { n: 1 },
    Realm: '42',
    Version: 3,
    Attempt: 4,
  }),
  items: [
    {
      StepName: 'first',
      Status: 'Completed',
      ResponseStatus: 200,
      ResponseBody: '{"x":1}',
      Data: { x: 1 },
      Error: null,
    },
  ],
}
export const answered = (
  status: number,
  body = '{}',
  retryAfter: string | null = null,
): CallOutcome => ({
  kind: 'answered',
  status,
  headers: [],
  body,
  retryAfter,
  responseId: null,
})

export const TRACE_ID = '4bf92f3577b34da6a3ce929d0e0e4736'
export const TRACEPARENT = `00-${TRACE_ID}-00f067aa0ba902b7-01`

const anyProcess = processOf('P', { steps: { first: () => null, second: () => null } })

const NO_MARKS: Marks = {
  reserve: async () => Promise.reject(new Error('no marks')),
  update: async () => {},
  createdBy: async () => null,
  ofOthers: async () => new Set(),
  now: async () => 0,
}

/** A clock whose time never advances, although its timers expire as usual. */
export const stoppedClock: Clock = { ...systemClock, now: () => 0 }

/** Returns what a step gets from its worker. By default, no call gets a response, and the clock stands still. */
export const stepDeps = (change: Partial<StepDeps> = {}): StepDeps => ({
  call: async () => ({ kind: 'aborted', isSent: false }),
  gateway: {
    url: 'http://gateway:7218',
    key: 'service-key',
    faultOf: intuit.accounting.faultOf,
    newObjectVisibleMs: 180_000,
  },
  coolDowns: createCoolDowns(() => 0),
  limiter: createTargetLimiter({
    source: createMemoryTargetCalls(() => 0),
    clock: stoppedClock,
  }),
  endsAt: 300_000,
  files: { writeAtomic: async () => {}, removeTemporaryFiles: async () => {} },
  settings: { dataDir: '/data' },
  log: () => createLogger('test', 'silent'),
  traceparent: () => TRACEPARENT,
  onCall: () => {},
  onReport: () => {},
  stepBooks: {
    marks: NO_MARKS,
    recordedEntry: async () => ({ errorClass: 'entry_not_found', error: 'none' }),
  },
  onWritten: () => {},
  linkTo: () => 'https://decisions.test/',
  closingDates: { of: async (_realm, read) => read() },
  async *children() {},
  abort: new StepAbort(),
  isOnline: async () => true,
  now: () => 0,
  ...change,
})

/** Runs a step whose calls get these outcomes in order; returns the outcome of the step and its calls. */
export async function outcomeOf(
  handler: AnyStep,
  answers: readonly CallOutcome[] = [],
  change: Partial<
    StepDeps & {
      readonly isInDoubt: boolean
      readonly realm: string | null
      readonly attempt: number
      readonly round: Round
      readonly initialData: Claim['run']['InitialData']
      readonly definition: StepProcess
    }
  > = {},
) {
  const calls: CallRequest[] = []
  const { isInDoubt = false, realm = '42', definition = anyProcess, round, ...others } = change
  const { initialData = { n: 1 }, attempt = claim.run.Attempt, ...deps } = others
  const outcome = await runStep(
    handler,
    {
      ...claim,
      run: {
        ...claim.run,
        Attempt: attempt,
        InDoubt: isInDoubt,
        Realm: realm,
        InitialData: initialData,
      },
      ...(round !== undefined && { round }),
    },
    definition,
    stepDeps({
      call: async (request) => {
        calls.push(request)
        return answers[calls.length - 1] ?? { kind: 'aborted', isSent: false }
      },
      ...deps,
    }),
  )
  return { outcome, calls }
}
