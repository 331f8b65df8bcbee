import { setImmediate } from 'node:timers/promises'
import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { Run } from '../run/run.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { startSweeper } from './sweeper.ts'

const process = processOf('P', { steps: { first: () => {}, second: () => {} } })
const run = (n: number, StepName = 'first'): Run => ({
  ...claimedRun({ TransactionID: String(n), Status: 'Queued', StepName, Version: 0, Attempt: 0 }),
  Tags: null,
  ConcurrencyKey: null,
  NotBefore: null,
  DebounceKey: null,
  Absorbed: 0,
  InputChanged: false,
  ErasedAt: null,
  PurgedAt: null,
})

/** Starts a sweeper with an hourly poll and fake dependencies that record its calls. So a test has only a few polls. */
function sweeperOn(given: {
  due?: (limit: number) => Run[]
  runsAtUnknownStep?: Run[]
  waiting?: (step: string) => number | null
  consumers?: (step: string) => number | null
  undoesFailure?: boolean
  failRun?: () => Promise<null>
}) {
  const {
    due = () => [],
    runsAtUnknownStep = [],
    waiting = () => 0,
    consumers = () => null,
    undoesFailure = false,
    failRun = async () => null,
  } = given
  const polls: number[] = []
  const sent: Run[] = []
  const swept: number[] = []
  const failed: unknown[] = []
  let onDue = (): void => {}
  const sweeper = startSweeper({
    source: {
      watch: (listener) => (onDue = listener),
      due: async (_, limit) => {
        const found = due(limit)
        polls.push(found.length)
        return found
      },
      runsAtUnknownStep: async () => runsAtUnknownStep.splice(0),
      failRun: (...call) => (failed.push(call), failRun()),
    } as Partial<TransactionSource> as TransactionSource,
    queue: {
      // A broker responds in a later turn of the event loop.
      waiting: (_, step) => setImmediate(waiting(step)),
      consumers: async (_, step) => consumers(step),
    },
    lanes: { of: ({ Realm = null }) => (Realm === null ? null : 'busy') },
    publisher: {
      republishStep: async (state) => void sent.push(state as Run),
      publishEvent() {},
      publishStep: async () => {},
    },
    worker: { isConsuming: () => true },
    processes: new Map([['P', { ...process, undoesFailure }]]),
    log: createLogger('test', 'silent'),
    clock: systemClock,
    random: () => 0.5,
    intervalMs: 3_600_000,
    prefetch: 10,
    onSweep: (count) => swept.push(count),
  })
  return {
    polls,
    sent,
    swept,
    failed,
    hint: () => onDue(),
    [Symbol.asyncDispose]: () => sweeper[Symbol.asyncDispose](),
  }
}

describe('the sweeper', () => {
  it('the sweeper polls at once when the transaction source reports inserted rows, and polls once for many reports', async () => {
    await using sweeper = sweeperOn({})
    const { polls, hint } = sweeper
    await eventually(() => expect(polls).toHaveLength(1))
    for (let n = 0; n < 10_000; n += 1) hint()
    await eventually(() => expect(polls).toHaveLength(2))
    hint()
    await eventually(() => expect(polls).toHaveLength(3))
  })

  it('the sweeper publishes at most 5,000 messages per poll, and publishes the others after the workers have emptied the queues', async () => {
    let left = 12_000
    let ready = 0
    await using sweeper = sweeperOn({
      due: (limit) => {
        const found = Array.from({ length: Math.min(limit, left) }, (_, n) => run(n))
        left -= found.length
        ready += found.length
        return found
      },
      waiting: (step) => (step === 'first' ? ready : 0),
    })
    const { sent, swept } = sweeper
    for (const total of [5_000, 10_000, 12_000]) {
      await eventually(() => expect(sent).toHaveLength(total))
      ready = 0 // the workers have consumed the messages
    }
    expect(swept.reduce((sum, count) => sum + count)).toBe(12_000)
  })

  it('the sweeper does not publish the run of a busy company whose lane is long, and publishes all others', async () => {
    const runs = [{ ...run(1), Realm: '42' }, run(2)]
    const sweeper = sweeperOn({
      due: () => runs.splice(0),
      waiting: (step) => (step === 'busy' ? 21 : 0),
    })
    await eventually(() => expect(sweeper.polls).toHaveLength(1))
    await sweeper[Symbol.asyncDispose]()
    expect(sweeper.sent.map(({ TransactionID }) => TransactionID)).toEqual(['2'])
    expect(sweeper.swept).toEqual([1])
  })

  it('a run that cannot be failed ends the poll, whatever lanes the other runs have, and the next poll repeats it', async () => {
    let polls = 0
    const invalid = { ...run(1), TransactionID: '' }
    const sweeper = sweeperOn({
      due: () => {
        polls += 1
        return polls === 1 ? [invalid, { ...run(2), Realm: '42' }, { ...run(3), Realm: '42' }] : []
      },
      failRun: () => Promise.reject(new IntegrationError('store_unavailable', 'not now')),
    })
    await eventually(() => expect(sweeper.sent).toHaveLength(2))
    sweeper.hint()
    await eventually(() => expect(polls).toBe(2))
    await sweeper[Symbol.asyncDispose]()
  })

  it.each([
    ['fails', 'has no queue', () => null, 1],
    ['fails', 'has a queue without a consumer', () => 0, 1],
    ['keeps', 'has a queue that another version of the process consumes', () => 2, 0],
  ])(
    'a run at a step that is missing in its process: the sweeper %s the run if the step %s',
    async (_, __, consumers, failures) => {
      const sweeper = sweeperOn({ runsAtUnknownStep: [run(1, 'gone')], consumers })
      await eventually(() => expect(sweeper.polls).toHaveLength(1))
      await sweeper[Symbol.asyncDispose]()
      expect(sweeper.failed).toHaveLength(failures)
      if (failures > 0) expect(sweeper.failed[0]).toContain('step_unknown')
    },
  )

  it.each([
    [false, 'Running', undefined],
    [true, 'Running', 'second'],
    [false, 'Undoing', 'second'],
  ] as const)(
    'the undo of a run at a missing step begins at the last step (onFailure: undo %s, %s)',
    async (undoesFailure, Status, undoAt) => {
      const lost = { ...run(1, 'gone'), Status }
      const sweeper = sweeperOn({ runsAtUnknownStep: [lost], undoesFailure })
      await eventually(() => expect(sweeper.polls).toHaveLength(1))
      await sweeper[Symbol.asyncDispose]()
      expect(sweeper.failed).toEqual([[lost, 0, 'step_unknown', expect.any(String), undoAt]])
    },
  )

  it('the sweeper does not fail runs at an unknown step while the broker is unavailable', async () => {
    let asked = 0
    const sweeper = sweeperOn({
      runsAtUnknownStep: [run(1, 'gone')],
      // The broker is available at the start of the poll, but not when the sweeper queries the queue of the unknown
      // step.
      waiting: (step) => (step === 'first' && (asked += 1) > 1 ? null : 0),
    })
    await eventually(() => expect(sweeper.polls).toHaveLength(1))
    await sweeper[Symbol.asyncDispose]()
    expect(sweeper.failed).toEqual([])
  })
})
