import { describe, expect, it } from 'vitest'
import {
  type ActionableRun,
  blockedActions,
  causeOf,
  type ExplainedRun,
  type RunContext,
  whyOf,
} from './why.ts'

const aRun: ExplainedRun = {
  Status: 'Failed',
  StepName: 'report',
  Attempt: 1,
  ErrorClass: null,
  LastError: null,
  WaitingFor: null,
  InDoubt: false,
  NextAttemptAt: null,
}
const explained = (run: Partial<ExplainedRun>, context?: RunContext): string =>
  whyOf({ ...aRun, ...run }, context)

describe('the sentence that explains the state of a run', () => {
  it('a status that only a later release knows has no sentence', () => {
    expect(explained({ Status: 'Dreaming' as ExplainedRun['Status'] })).toBe('')
  })

  it.each<[Partial<ExplainedRun>, string]>([
    [
      { ErrorClass: 'http_503' },
      'Failed at report: the target responded with 503. Fix the target, then resume: the same idempotency keys are sent again.',
    ],
    [
      {
        ErrorClass: 'http_400',
        LastError: '6240 Duplicate Name Exists Error: It exists. (POST x …)',
      },
      'Failed at report: the provider responded with 6240 Duplicate Name Exists Error. Another customer, vendor or employee has this name. Use the existing one, or queue a copy with another name.',
    ],
    [
      { ErrorClass: 'http_404' },
      'Failed at report: the target responded with 404. The same data is rejected again. Queue a copy with changes, or fix the target and resume.',
    ],
    [
      { ErrorClass: 'step_unknown' },
      'Failed at report: the process has no such step any more. Deploy the process with this step, then resume.',
    ],
    [
      { Status: 'Retrying', ErrorClass: 'network' },
      'Waits for the next attempt of report, because the target could not be reached. It is made by itself.',
    ],
    [
      { Status: 'Retrying', ErrorClass: 'step_waits' },
      'Waits at report, which asks again by itself.',
    ],
    [{ Status: 'Running' }, 'Runs report.'],
    [{ Status: 'Running', Attempt: 0 }, 'Waits for its turn at report.'],
    [
      { Status: 'Running', Attempt: 0, NextAttemptAt: '2026-11-29T00:00:00.000Z' },
      'Waits for the next round of report, which begins by itself.',
    ],
    [
      { Status: 'Running', Attempt: 4, ErrorClass: 'http_503' },
      'Runs report: attempt 4, after the target responded with 503.',
    ],
    [
      { Status: 'Running', ErrorClass: 'credential_held' },
      'Runs report: attempt 1, after the provider asked the company to slow down.',
    ],
    // The worker of the attempt before it was lost.
    [{ Status: 'Running', Attempt: 2 }, 'Runs report: attempt 2.'],
    [
      { Status: 'Waiting', WaitingFor: 'ACC-1' },
      'Waits for ACC-1, whose access token cannot be obtained now. The page of the company says what helps; then the run continues by itself.',
    ],
    [
      { Status: 'Waiting', WaitingFor: 'concurrency' },
      'Waits for a slot: the process limits how many runs are in progress.',
    ],
    [
      {
        Status: 'Waiting',
        WaitingFor: 'books:42',
        ErrorClass: 'books_closed',
        LastError: '6210 Account Period Closed: the books of the company are closed. Have …',
      },
      'Waits at report, because the provider responded with 6210 Account Period Closed. Queue a copy with a later date and cancel this run, or have the period opened and retry it.',
    ],
    [{ Status: 'Completed' }, ''],
  ])('the sentence about the run %o is %s', (run, sentence) => {
    expect(explained(run)).toBe(sentence)
  })

  it('the sentence on a run that waits for a company has the name of the company', () => {
    const run = {
      Status: 'Waiting',
      StepName: 'order',
      Attempt: 0,
      ErrorClass: null,
      LastError: null,
      WaitingFor: 'ACC-1',
      NextAttemptAt: null,
    } as const
    expect(whyOf({ ...run, InDoubt: false }, { company: 'Rosewood' })).toMatch(
      /^Waits for Rosewood, whose/,
    )
  })

  it.each<Partial<ExplainedRun>>([
    { Status: 'Queued', Attempt: 0 },
    { Status: 'Running', Attempt: 0 },
    { Status: 'Retrying', ErrorClass: 'http_503' },
  ])('the sentence on the due run %j of a paused process names the pause', (run) => {
    expect(explained(run, { isPaused: true })).toBe(
      'Waits at report, because its process is paused. It continues when the process is resumed.',
    )
  })

  it('the sentences on runs of a paused process that run or have failed do not name the pause', () => {
    expect(explained({ Status: 'Running' }, { isPaused: true })).toBe('Runs report.')
    expect(explained({}, { isPaused: true })).toMatch(/^Failed at report/)
  })

  it('the sentence on a run of a paused company names the company, also during an undo', () => {
    const paused = { WaitingFor: 'paused:42', ErrorClass: null } as const
    expect(explained({ ...paused, Status: 'Waiting' })).toBe(
      'Waits before report, because the company 42 is paused. It continues when the company is resumed.',
    )
    expect(explained({ ...paused, Status: 'Undoing' })).toBe(
      'Takes back what its completed steps have done. The undo of report waits, because the company 42 is paused.',
    )
    const named = { company: 'Rosewood' }
    for (const Status of ['Waiting', 'Undoing'] as const)
      expect(explained({ ...paused, Status }, named)).toContain('because Rosewood is paused.')
  })

  it('the sentence on the state of a run shows an unknown error class', () => {
    expect(explained({ ErrorClass: 'moon_phase' })).toContain('moon phase')
  })

  it('the sentence on a run whose company must be reconnected says so, and that the run then continues', () => {
    const waiting = { Status: 'Waiting', WaitingFor: 'ACC-1' } as const
    expect(explained(waiting, { company: 'Rosewood', mustReconnect: true })).toBe(
      'Waits for Rosewood, which must be reconnected. Then the run continues by itself, at once.',
    )
  })

  it('the sentence on a run in doubt warns that its call may have taken effect', () => {
    expect(explained({ InDoubt: true })).toContain('look into the target first')
  })
})

describe('the cause of the state of a run in a few words', () => {
  const duplicate = { ErrorClass: 'http_400', LastError: '6240 Duplicate Name Exists Error: no' }
  const company = { Status: 'Waiting', WaitingFor: 'ACC-1' } as const

  it.each<[Partial<ExplainedRun>, string, RunContext?]>([
    [duplicate, '6240 Duplicate Name Exists Error'],
    [{ ...duplicate, Status: 'UndoFailed', InDoubt: true }, '6240 Duplicate Name Exists Error'],
    [{ ...duplicate, Status: 'Retrying' }, '6240 Duplicate Name Exists Error'],
    [{ ErrorClass: 'http_503' }, 'The target responded with 503'],
    [{ ErrorClass: 'http_503', Status: 'Retrying' }, 'The target responded with 503'],
    [{ ...company }, 'Waits for Smith, Jones & Co. Ltd', { company: 'Smith, Jones & Co. Ltd' }],
    [{ ...company }, 'Waits for ACC-1', { mustReconnect: true }],
    [{ Status: 'Waiting', WaitingFor: 'event:approved' }, 'Waits for the event approved'],
    [{ Status: 'Queued' }, 'Its process is paused', { isPaused: true }],
    [{ Status: 'Running' }, 'Runs report'],
    [{ Status: 'Completed' }, ''],
    [{ Status: 'Cancelled' }, ''],
    [{}, ''],
  ])('the cause of %o is %s', (run, cause, context) => {
    expect(causeOf({ ...aRun, ...run }, context)).toBe(cause)
  })
})

describe('the actions that a run does not allow', () => {
  const blocked = (run: Partial<ActionableRun>, latest = 0): readonly string[] =>
    Object.keys(
      blockedActions(
        {
          Status: 'Failed',
          InDoubt: false,
          NotBefore: null,
          PurgedAt: null,
          ErasedAt: null,
          ReplayID: 0,
          WaitingFor: null,
          ...run,
        },
        latest,
      ),
    ).toSorted((one, other) => one.localeCompare(other))

  it.each<[string, Partial<ActionableRun>, readonly string[]]>([
    ['a failed run', {}, ['cancel', 'retry', 'settle']],
    ['a failed run in doubt', { InDoubt: true }, ['cancel', 'retry']],
    ['a completed run', { Status: 'Completed' }, ['cancel', 'resume', 'retry', 'settle']],
    ['a queued run', { Status: 'Queued' }, ['replay', 'resume', 'retry', 'settle', 'undo']],
    ['a retrying run', { Status: 'Retrying' }, ['replay', 'resume', 'settle', 'undo']],
    ['a run that is being undone', { Status: 'Undoing' }, ['replay', 'resume', 'settle', 'undo']],
    ['an undone run', { Status: 'Undone' }, ['cancel', 'resume', 'retry', 'settle', 'undo']],
    [
      'a run whose undo has failed',
      { Status: 'UndoFailed' },
      ['cancel', 'retry', 'settle', 'undo'],
    ],
    [
      'a run that waits for an event',
      { Status: 'Waiting', WaitingFor: 'event:approved' },
      ['replay', 'resume', 'retry', 'settle', 'undo'],
    ],
    ['a purged run', { PurgedAt: 'x' }, ['cancel', 'replay', 'resume', 'retry', 'settle', 'undo']],
  ])('the console blocks every action that is not possible for %s', (_, run, actions) => {
    expect(blocked(run)).toEqual(actions)
  })

  it('a run that is not the latest run of its transaction allows no action that would continue the run', () => {
    expect(blocked({}, 2)).toEqual(['cancel', 'replay', 'resume', 'retry', 'settle', 'undo'])
  })
})
