import { StreamedTransition } from '@integration-host/shared/contracts/events'
import { describe, expect, it } from 'vitest'
import type { RunGroup } from './installation.ts'
import { createRunTracker } from './run-tracker.ts'

const COUNTED = Date.parse('2026-11-23T10:00:00.000Z')
const at = (seconds: number): string => new Date(COUNTED + seconds * 1_000).toISOString()
const event = (Version: number, Status: string, seconds: number, id = '1') =>
  StreamedTransition.parse({
    Process: 'P',
    TransactionID: id,
    ReplayID: 0,
    Status,
    StepName: 's',
    ErrorClass: Status === 'Failed' ? 'http_503' : null,
    Version,
    At: at(seconds),
  })
const counted: RunGroup = {
  process: 'P',
  step: 's',
  status: 'Failed',
  errorClass: 'http_503',
  providerError: null,
  waitingFor: null,
  count: 5,
  inDoubt: 0,
  endedAt: null,
}
const counts = (groups: readonly RunGroup[]): number[] => groups.map(({ count }) => count)
const failures = (groups: readonly RunGroup[]): number[] =>
  counts(groups.filter(({ status }) => status === 'Failed'))

describe('the run tracker, which follows runs between two counts of the coordinator', () => {
  it('if a run fails after the count, the run tracker adds the run to its group or begins a new group', () => {
    const tracker = createRunTracker()
    tracker.follow(event(0, 'Queued', 1))
    tracker.follow(event(3, 'Failed', 2))
    expect(counts(tracker.corrected('P', [counted], COUNTED))).toEqual([6])
    expect(counts(tracker.corrected('P', [], COUNTED))).toEqual([1])
    expect(tracker.corrected('Q', [], COUNTED)).toEqual([])
  })

  it('the run tracker does not count a run a second time if the run failed before the count', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -1))
    expect(counts(tracker.corrected('P', [counted], COUNTED))).toEqual([5])
  })

  it('the run tracker removes a resumed run from its group only if the coordinator has counted the run there', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -1))
    tracker.follow(event(4, 'Queued', 1))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([4])
    tracker.follow(event(3, 'Failed', 1, '2'))
    tracker.follow(event(4, 'Queued', 2, '2'))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([4])
  })

  it('the run tracker removes a run from the group in which the coordinator has counted it, even after several transitions', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -9))
    tracker.follow(event(4, 'Queued', 1))
    tracker.follow(event(5, 'Retrying', 2))
    tracker.follow(event(6, 'Running', 3))
    tracker.follow(event(7, 'Completed', 4))
    expect(counts(tracker.corrected('P', [counted], COUNTED))).toEqual([4])
  })

  it('if a run was resumed and failed again, the group of failed runs has the time of its last failure', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -9))
    tracker.follow(event(4, 'Queued', 1))
    tracker.follow(event(6, 'Failed', 2))
    const one = { ...counted, count: 1, endedAt: COUNTED - 9_000 }
    expect(tracker.corrected('P', [one], COUNTED)).toMatchObject([
      { count: 1, endedAt: COUNTED + 2_000 },
    ])
    const two = { ...one, count: 2 }
    expect(tracker.corrected('P', [two], COUNTED)).toMatchObject([
      { count: 2, endedAt: COUNTED - 9_000 },
    ])
  })

  it('if one event reports that a run was resumed and failed again, the group has the time of the new failure', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -9))
    tracker.follow({ ...event(6, 'Failed', 2), First: { Version: 4, At: at(1) } })
    const one = { ...counted, count: 1, endedAt: COUNTED - 9_000 }
    expect(tracker.corrected('P', [one], COUNTED)).toMatchObject([
      { count: 1, endedAt: COUNTED + 2_000 },
    ])
  })

  it('if the first of several failed runs is resumed, the group has the time of the next failure', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', 1))
    tracker.follow(event(3, 'Failed', 2, '2'))
    expect(tracker.corrected('P', [], COUNTED)).toMatchObject([
      { count: 2, endedAt: COUNTED + 1_000 },
    ])
    tracker.follow(event(4, 'Queued', 3))
    const failed = tracker.corrected('P', [], COUNTED).filter(({ status }) => status === 'Failed')
    expect(failed).toMatchObject([{ count: 1, endedAt: COUNTED + 2_000 }])
  })

  it('the run tracker counts queued and running runs in one group, so that the start of a step changes no number', () => {
    const tracker = createRunTracker()
    tracker.follow(event(0, 'Queued', -1))
    tracker.follow(event(1, 'Running', 1))
    tracker.follow(event(0, 'Queued', 1, '2'))
    const inFlight = { ...counted, errorClass: null, count: 1 }
    const groups = [
      { ...inFlight, status: 'Queued' },
      { ...inFlight, status: 'Running', step: 'other' },
    ]
    expect(tracker.corrected('P', groups, COUNTED)).toMatchObject([{ status: 'Running', count: 3 }])
  })

  it('the run tracker assumes that a run whose earlier transitions it does not know was in flight', () => {
    const tracker = createRunTracker()
    tracker.follow(event(4, 'Completed', 1))
    const inFlight = { ...counted, status: 'Running', errorClass: null, count: 2 }
    expect(counts(tracker.corrected('P', [inFlight], COUNTED))).toEqual([1])
  })

  it('a run whose creation and end are one event was not yet in a count before its creation, and in flight in one after it', () => {
    const tracker = createRunTracker()
    const First = { Version: 0, At: at(-2) }
    tracker.follow({ ...event(6, 'Completed', 1), First })
    const inFlight = { ...counted, status: 'Running', errorClass: null, count: 2 }
    expect(counts(tracker.corrected('P', [inFlight], COUNTED - 3_000))).toEqual([2])
    expect(counts(tracker.corrected('P', [inFlight], COUNTED))).toEqual([1])
    expect(counts(tracker.corrected('P', [inFlight], COUNTED + 2_000))).toEqual([2])
  })

  it('transitions after a correction change the next correction of the same count', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', -1))
    expect(counts(tracker.corrected('P', [counted], COUNTED))).toEqual([5])
    tracker.follow(event(4, 'Queued', 1))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([4])
    tracker.follow(event(6, 'Failed', 2))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([5])
    expect(failures(tracker.corrected('P', [counted], COUNTED + 3_000))).toEqual([5])
  })

  it('after 50,000 changes of other runs the run tracker has dropped a run, and keeps a count that it has corrected', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Failed', 1, 'first'))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([6])
    for (let n = 0; n < 50_000; n += 1) tracker.follow(event(3, 'Completed', 1, `run-${n}`))
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([6])
    expect(failures(tracker.corrected('P', [counted], COUNTED - 1_000))).toEqual([5])
  })

  it('the run tracker ignores repeated and outdated transitions', () => {
    const tracker = createRunTracker()
    for (const repeated of [event(4, 'Queued', 2), event(3, 'Failed', 1), event(4, 'Queued', 2)])
      tracker.follow(repeated)
    expect(failures(tracker.corrected('P', [counted], COUNTED))).toEqual([5])
  })

  it('the run tracker counts ended runs in the minute in which they ended', () => {
    const tracker = createRunTracker()
    tracker.follow(event(3, 'Completed', 0))
    tracker.follow(event(3, 'Failed', 0, '2'))
    tracker.follow(event(1, 'Running', 0, '3'))
    const minutes = tracker.minutes(COUNTED + 60_000)
    expect(minutes).toHaveLength(60)
    expect(minutes.slice(-2)).toEqual([
      { Done: 1, Failed: 1 },
      { Done: 0, Failed: 0 },
    ])
  })
})
