import { createLogger } from '@integration-host/shared/logger'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { defineProcess } from '../process/definition.ts'
import type { Run } from '../transaction/run.ts'
import type { TransactionSource } from '../transaction/transaction-source.ts'
import { type PullDeps, startPulls } from './sweeper.ts'

const process = defineProcess('P', { steps: { first: () => {}, second: () => {} } })
const run = (n: number, StepName = 'first'): Run => ({
  Process: 'P',
  TransactionID: String(n),
  ReplayID: 0,
  Status: 'Queued',
  StepName,
  InitialData: n,
  Realm: null,
  Version: 0,
  Attempt: 0,
  NextAttemptAt: null,
  WaitingFor: null,
  LastError: null,
  ErrorClass: null,
  InDoubt: false,
  CreatedAt: '',
  UpdatedAt: '',
  CompletedAt: null,
})

/** Pulls over a source of which only what a pull uses is there; they tick once an hour. */
function pulls(given: {
  due?: (limit: number) => Run[]
  runsAtUnknownStep?: Run[]
  waiting?: (step: string) => number | null
  consumers?: (step: string) => number | null
}) {
  const {
    due = () => [],
    runsAtUnknownStep = [],
    waiting = () => 0,
    consumers = () => null,
  } = given
  const looks: number[] = []
  const sent: Run[] = []
  const swept: number[] = []
  const refused: unknown[] = []
  let onDue = (): void => {}
  const pulling = startPulls({
    source: {
      watch: (listener) => (onDue = listener),
      due: async (_, limit) => {
        const found = due(limit)
        looks.push(found.length)
        return found
      },
      runsAtUnknownStep: async () => runsAtUnknownStep.splice(0),
      failRun: async (...call) => (refused.push(call), null),
      paused: async () => new Set<string>(),
      recoverExpiredLeases: async () => [],
      audit: async () => ({ runsByStatus: {}, dueBySteps: [], violations: {} }) as never,
    } as Partial<TransactionSource> as TransactionSource,
    queue: {
      waiting: async (_, step) => waiting(step),
      consumers: async (_, step) => consumers(step),
    } as PullDeps['queue'],
    publisher: {
      announce: async () => {},
      remind: async (one) => void sent.push(one as Run),
      announceAll() {},
      tell() {},
      settled: async () => {},
    },
    worker: { isConsuming: () => true, setPaused() {} } as unknown as PullDeps['worker'],
    processes: new Map([['P', process]]),
    log: createLogger('test', 'silent'),
    random: () => 0.5,
    localMs: 3_600_000,
    remoteMs: 3_600_000,
    prefetch: 10,
    onAudit: async () => {},
    onSweep: (count) => swept.push(count),
    onAdopt() {},
  })
  return {
    looks,
    sent,
    swept,
    refused,
    hint: () => onDue(),
    [Symbol.asyncDispose]: () => pulling[Symbol.asyncDispose](),
  }
}

describe('the local pull', () => {
  it('looks at once when the source hints at rows, once for many hints', async () => {
    await using pull = pulls({})
    const { looks, hint } = pull
    await eventually(() => expect(looks).toHaveLength(1))
    for (let n = 0; n < 10_000; n += 1) hint()
    await eventually(() => expect(looks).toHaveLength(2))
    hint()
    await eventually(() => expect(looks).toHaveLength(3))
  })

  it('sends five thousand at most, and the rest when the queues are short again', async () => {
    let left = 12_000
    let ready = 0
    await using pull = pulls({
      due: (limit) => {
        const found = Array.from({ length: Math.min(limit, left) }, (_, n) => run(n))
        left -= found.length
        ready += found.length
        return found
      },
      waiting: (step) => (step === 'first' ? ready : 0),
    })
    const { sent, swept } = pull
    for (const total of [5_000, 10_000, 12_000]) {
      await eventually(() => expect(sent).toHaveLength(total))
      ready = 0 // the workers took them
    }
    expect(swept.reduce((sum, count) => sum + count)).toBe(12_000)
  })

  it.each([
    ['no queue', () => null, 1],
    ['a queue that nobody takes from', () => 0, 1],
    ['a queue that another version of the process takes from', () => 2, 0],
  ])('fails what is due at a step it does not know: %s', async (_, consumers, refusals) => {
    const pull = pulls({ runsAtUnknownStep: [run(1, 'gone')], consumers })
    await eventually(() => expect(pull.looks).toHaveLength(1))
    await pull[Symbol.asyncDispose]()
    expect(pull.refused).toHaveLength(refusals)
    if (refusals > 0) expect(pull.refused[0]).toContain('step_unknown')
  })

  it('fails nothing for a step it does not know while the broker is away', async () => {
    let asked = 0
    const pull = pulls({
      runsAtUnknownStep: [run(1, 'gone')],
      // There when the pull began, away when it asks for the step.
      waiting: (step) => (step === 'first' && (asked += 1) > 1 ? null : 0),
    })
    await eventually(() => expect(pull.looks).toHaveLength(1))
    await pull[Symbol.asyncDispose]()
    expect(pull.refused).toEqual([])
  })
})
