import { describe, expect, it } from 'vitest'
import type { RunView } from '../src/contracts/runs.ts'
import { numberedAttempts } from './attempts.ts'
import { barOf, type Lane, waterfall } from './waterfall.ts'

const START = Date.parse('2026-11-22T02:31:00.000Z')
const at = (ms: number): string => new Date(START + ms).toISOString()

type Attempt = RunView['Attempts'][number]
const attempt = (
  StepName: string,
  number: number,
  [from, until]: readonly [number, number | null],
  Outcome = 'completed',
): Attempt => ({
  StepName,
  Attempt: number,
  Outcome,
  ResponseStatus: null,
  Error: null,
  Request: null,
  TraceId: null,
  ResponseId: null,
  StartedAt: at(from),
  FinishedAt: until === null ? null : at(until),
})

const run = (Attempts: readonly Attempt[], other: Partial<RunView> = {}): RunView => ({
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 0,
  Status: 'Completed',
  StepName: 'csv',
  Realm: null,
  Version: 4,
  Attempt: 1,
  NextAttemptAt: null,
  LastError: null,
  ErrorClass: null,
  WaitingFor: null,
  InDoubt: false,
  DefinitionVersion: null,
  DeadlineAt: null,
  NotBefore: null,
  DebounceKey: null,
  Absorbed: 0,
  Tags: null,
  Priority: 'normal',
  ConcurrencyKey: null,
  InputChanged: false,
  ErasedAt: null,
  PurgedAt: null,
  CreatedAt: at(0),
  UpdatedAt: at(5_000),
  CompletedAt: at(5_000),
  LeaseOwner: null,
  LeaseUntil: null,
  StartedAt: null,
  Why: '',
  Decision: null,
  Steps: ['order', 'csv'],
  Items: [],
  Broken: null,
  AttemptCount: Attempts.length,
  Runs: [],
  Entries: [],
  History: [],
  Company: null,
  DataRejected: false,
  Blocked: {},
  Attempts: [...Attempts],
  ...other,
})

/** Returns the entry of the action log about the resume of the run. */
const resumedAt = (ms: number): RunView['History'][number] => ({
  Key: 'action 1',
  At: at(ms),
  Kind: 'runs',
  Who: 'ada',
  Via: 'key console',
  What: 'resumed',
  Target: 'OrderProcess/66, run 0',
  Company: null,
  Page: null,
  Reason: null,
  Outcome: null,
  Rejected: false,
  Realm: null,
  TraceId: null,
  Action: 'resume',
})

/** Returns each segment of a lane as its kind, its begin and its end, in ms after the start. */
const shown = (lane: Lane | undefined): readonly (readonly [string, number, number])[] =>
  (lane?.segments ?? []).map(({ kind, from, until }) => [kind, from - START, until - START])

describe('the timeline of a run', () => {
  it('the timeline of a run has a lane for every step, also for steps that were not reached', () => {
    const { lanes } = waterfall(run([attempt('order', 1, [100, 300])]), 0)
    expect(lanes.map(({ step }) => step)).toEqual(['order', 'csv'])
    expect(shown(lanes[0])).toEqual([
      ['queued', 0, 100],
      ['completed', 100, 300],
    ])
    expect(shown(lanes[1])).toEqual([])
  })

  it('the timeline of a run shows each failed attempt, and labels the time until the next one only by its outcome', () => {
    const attempts = [
      attempt('order', 1, [0, 100], 'http_429'),
      attempt('order', 2, [2_100, 2_200], 'http_503'),
      attempt('order', 3, [4_000, 4_100]),
    ]
    const [order] = waterfall(run(attempts), 0).lanes
    expect(order?.segments.map(({ kind, text }) => [kind, text])).toEqual([
      ['failed', 'attempt 1: http_429'],
      ['wait', 'waited after http_429 (the target asks for slower calls)'],
      ['failed', 'attempt 2: http_503'],
      ['wait', 'waited after http_503'],
      ['completed', 'attempt 3: completed'],
    ])
  })

  it('all attempts of a step are numbered, and those that do not count are marked', () => {
    const held = [
      attempt('order', 1, [0, 100], 'credential_held'),
      attempt('order', 1, [2_000, 2_100], 'credential_held'),
      attempt('order', 1, [4_000, 4_100], 'http_503'),
      attempt('order', 2, [6_000, 6_100], 'http_429'),
      attempt('order', 2, [8_000, 8_100]),
      attempt('csv', 1, [9_000, 9_100]),
    ]
    expect(numberedAttempts(run(held)).map((one) => [one.number, one.isCounted])).toEqual([
      [1, false],
      [2, false],
      [3, true],
      [4, false],
      [5, true],
      [1, true],
    ])
    const [order] = waterfall(run(held), 0).lanes
    expect(order?.segments[0]?.text).toBe('attempt 1: credential_held, not counted')
  })

  it('if a run waits for its next attempt, its last attempt counts only if the coordinator has counted the attempt', () => {
    const waiting = (Attempt: number) =>
      run([attempt('order', 1, [0, 100], 'http_429')], {
        Status: 'Retrying',
        StepName: 'order',
        CompletedAt: null,
        Attempt,
      })
    expect([0, 1].map((count) => numberedAttempts(waiting(count))[0]?.isCounted)).toEqual([
      false,
      true,
    ])
  })

  it('the last attempt before a run was resumed counts, although the next attempt has the same stored number', () => {
    const attempts = [
      attempt('order', 1, [0, 100], 'http_422'),
      attempt('order', 1, [4_000, 4_100], 'http_422'),
    ]
    const resumed = run(attempts, { History: [resumedAt(3_000)] })
    expect(numberedAttempts(resumed).map(({ number, isCounted }) => [number, isCounted])).toEqual([
      [1, true],
      [2, true],
    ])
  })

  it('the timeline of a run that has not ended shows the wait until the next attempt', () => {
    const active = run([attempt('order', 1, [0, 100], 'network')], {
      Status: 'Retrying',
      StepName: 'order',
      ErrorClass: 'network',
      CompletedAt: null,
      NextAttemptAt: at(9_000),
    })
    const { until, now, lanes } = waterfall(active, START + 1_000)
    expect([until, now]).toEqual([START + 9_000, START + 1_000])
    expect(lanes[0]?.segments.at(-1)?.text).toBe('waits for the next attempt after network')
    expect(shown(lanes[0])).toContainEqual(['next', 100, 9_000])
  })

  it('the timeline of a run does not explain the time between a failure and the resume of the run', () => {
    const attempts = [
      attempt('order', 1, [0, 100], 'http_503'),
      attempt('order', 1, [2_000, 2_100], 'http_422'),
      attempt('order', 1, [4_000, 4_100]),
    ]
    const waits = (other: Partial<RunView>) =>
      shown(waterfall(run(attempts, other), 0).lanes[0]).filter(([kind]) => kind === 'wait')
    // Another attempt follows http_422 only if a person resumes the run, even if the resume is no longer listed.
    expect(waits({})).toEqual([['wait', 100, 2_000]])
    // The attempt that ended with http_503 was the last one that the step could make.
    expect(waits({ History: [resumedAt(1_000)] })).toEqual([])
  })

  it('a run whose target is in a cool-down was queued until its step was held, and waits since then', () => {
    const held = run([], {
      Status: 'Retrying',
      StepName: 'order',
      ErrorClass: 'target_held',
      CompletedAt: null,
      UpdatedAt: at(300),
      NextAttemptAt: at(9_000),
    })
    const [order] = waterfall(held, START + 1_000).lanes
    expect(shown(order)).toEqual([
      ['queued', 0, 300],
      ['next', 300, 9_000],
    ])
    expect(order?.segments[1]?.text).toBe(
      'waits for the next attempt after target_held (the target slows down or is at its limits)',
    )
    const later = waterfall({ ...held, ErrorClass: 'moon_phase' }, START + 1_000).lanes[0]
    expect(later?.segments[1]?.text).toBe('waits for the next attempt')
  })

  it('an attempt in doubt lasts at most until the next attempt or until its worker was found lost, and no wait follows it', () => {
    const lost = attempt('order', 1, [100, null], 'in_doubt')
    const repeated = run([lost, attempt('order', 2, [3_000, 3_100])])
    expect(shown(waterfall(repeated, 0).lanes[0])).toEqual([
      ['queued', 0, 100],
      ['doubt', 100, 3_000],
      ['completed', 3_000, 3_100],
    ])
    const due = run([lost], { Status: 'Running', StepName: 'order', CompletedAt: null })
    const [order] = waterfall(due, START + 60_000).lanes
    expect(shown(order)).toContainEqual(['doubt', 100, 5_000])
    expect(order?.segments[1]?.text).toBe('attempt 1: in_doubt, its end is not recorded')
    const again = waterfall({ ...due, StartedAt: at(6_000) }, START + 60_000).lanes[0]
    expect(shown(again).slice(1)).toEqual([
      ['doubt', 100, 6_000],
      ['running', 6_000, 60_000],
    ])
  })

  it('the timeline of a replay says which steps it has copied from the run before', () => {
    const copied: RunView['Items'][number] = {
      StepName: 'order',
      Status: 'Copied',
      Attempt: 0,
      IdempotencyKey: 'key',
      ResponseStatus: 201,
      Error: null,
      StartedAt: at(-9_000),
      FinishedAt: at(-8_000),
    }
    const skipped = { ...copied, StepName: 'report', Status: 'Skipped' as const }
    const received = {
      ...copied,
      StepName: 'approved',
      Status: 'Completed' as const,
      Sender: { Person: 'ada', KeyID: 'console', EventID: 'e', Reason: null },
    }
    const checked = { ...copied, StepName: 'checked', Status: 'Waiting' as const }
    const lines = { ...copied, StepName: 'lines', Status: 'Failed' as const }
    const replay = run([attempt('csv', 1, [100, 300])], {
      ReplayID: 1,
      Steps: ['order', 'report', 'approved', 'checked', 'lines', 'csv', 'mail'],
      Items: [copied, skipped, received, checked, lines],
    })
    const { lanes } = waterfall(replay, 0)
    expect(lanes.map(({ without }) => without)).toEqual([
      'copied',
      'skipped',
      'received',
      'waits',
      'failed',
      'not reached',
      'not reached',
    ])
    expect(shown(lanes[0])).toEqual([])
  })

  it('in the timeline of a run, an undo is no failed attempt, and the attempt that it takes back has counted', () => {
    const attempts = [
      attempt('order', 1, [0, 100]),
      attempt('csv', 1, [200, 300], 'step_failed'),
      attempt('order', 1, [400, 500], 'undone'),
    ]
    const undone = run(attempts, { Status: 'Undone' })
    expect(shown(waterfall(undone, 0).lanes[0]).map(([kind]) => kind)).toEqual([
      'completed',
      'completed',
    ])
    expect(numberedAttempts(undone).every(({ isCounted }) => isCounted)).toBe(true)
  })

  it('in the timeline of a run that waits for an event, the wait names the event', () => {
    const waiting = run([], {
      Status: 'Waiting',
      StepName: 'order',
      WaitingFor: 'event:approved',
      CompletedAt: null,
      UpdatedAt: at(100),
      NextAttemptAt: at(90_000),
    })
    expect(waterfall(waiting, START + 1_000).lanes[0]?.segments.at(-1)?.text).toBe(
      'waits for the event approved',
    )
  })

  it('in the timeline of a run, the attempt in flight lasts until now', () => {
    const active = run([], {
      Status: 'Running',
      StepName: 'order',
      CompletedAt: null,
      StartedAt: at(200),
    })
    const { lanes } = waterfall(active, START + 1_000)
    expect(shown(lanes[0])).toEqual([
      ['queued', 0, 200],
      ['running', 200, 1_000],
    ])
  })

  it('the timeline of a run leaves out the middle of a lane with many attempts, and shows no wait in its place', () => {
    const attempts = Array.from({ length: 40 }, (_, index) =>
      attempt('order', index + 1, [index * 1_000, index * 1_000 + 900], 'http_503'),
    )
    const [order] = waterfall(run(attempts, { CompletedAt: at(60_000) }), 0).lanes
    expect(order?.omitted).toBe(28)
    expect(order?.segments.filter(({ kind }) => kind === 'failed')).toHaveLength(12)
  })

  it('the timeline of a run shows no wait before the first shown attempt if older attempts were not read', () => {
    const [order] = waterfall(
      run([attempt('order', 250, [3_000, 3_100])], { AttemptCount: 250 }),
      0,
    ).lanes
    expect(shown(order)).toEqual([['completed', 3_000, 3_100]])
  })

  it('the width of a bar is its share of the time, and a bar that would be too thin to see has a minimum width', () => {
    const of = { from: 1_000, until: 2_000 }
    expect(barOf(of, { from: 1_100, until: 1_300 })).toEqual({ left: 0.1, width: 0.2 })
    expect(barOf(of, { from: 1_100, until: 1_101 })).toEqual({ left: 0.1, width: 0.004 })
    expect(barOf(of, { from: 2_000, until: 2_000 })).toEqual({ left: 0.996, width: 0.004 })
    expect(barOf(of, of)).toEqual({ left: 0, width: 1 })
  })
})
