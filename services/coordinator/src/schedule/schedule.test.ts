import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineProcess } from '../step/define-process.ts'
import { type Schedule, type ScheduleOptions, scheduledId, transactionOf } from './schedule.ts'

const nightly = { name: 'nightly', cron: '0 2 * * *' }
const define = (schedules: unknown, input?: z.ZodType) =>
  defineProcess('P', {
    schedules: schedules as ScheduleOptions[],
    ...(input !== undefined && { input }),
  }).step('s', (step) => step.complete())

describe('the schedules of a process definition', () => {
  it('by default a schedule uses UTC, starts one run at each time, starts only the latest missed run, and has no jitter or input', () => {
    expect(define([nightly]).schedules).toEqual([
      {
        ...nightly,
        timeZone: 'UTC',
        each: 'once',
        catchUp: 'last',
        jitterSeconds: 0,
        input: null,
      },
    ])
    expect(define(undefined).schedules).toEqual([])
  })

  it.each([
    ['no array', nightly, 'schedules of P must be an array'],
    ['an entry that is no object', ['0 2 * * *'], 'schedules[0] of P must be an object'],
    [
      'a missing name',
      [{ cron: '0 2 * * *' }],
      'schedules[0].name of P must be a lower-case letter',
    ],
    ['a name with @', [{ ...nightly, name: 'a@b' }], 'schedules[0].name of P must be'],
    ['a name of 37 characters', [{ ...nightly, name: 'a'.repeat(37) }], 'at most 35 letters'],
    ['two schedules of one name', [nightly, nightly], 'process P has two schedules nightly'],
    [
      'an unknown member',
      [{ ...nightly, timezone: 'UTC' }],
      'schedule nightly of P has no option timezone',
    ],
    ['a missing cron', [{ name: 'nightly' }], 'cron of schedule nightly of P must be a text'],
    [
      'a cron that never fires',
      [{ ...nightly, cron: '0 0 30 2 *' }],
      'cron of schedule nightly of P (0 0 30 2 *, UTC): never fires: no date matches it',
    ],
    [
      'a cron that fires each second',
      [{ ...nightly, cron: '* * * * * *' }],
      'a schedule fires once a minute at most',
    ],
    [
      'a time zone that does not exist',
      [{ ...nightly, timeZone: 'America/Gotham' }],
      'time zone America/Gotham does not exist',
    ],
    [
      'an unknown priority',
      [{ ...nightly, priority: 'urgent' }],
      'priority of schedule nightly of P must be high or normal',
    ],
    ['an unknown each', [{ ...nightly, each: 'realm' }], 'each of schedule nightly of P must be'],
    ['an unknown catchUp', [{ ...nightly, catchUp: 'first' }], 'catchUp of schedule nightly of P'],
    ['a negative jitter', [{ ...nightly, jitterSeconds: -1 }], 'jitterSeconds of schedule nightly'],
    ['a jitter of two days', [{ ...nightly, jitterSeconds: 172_800 }], 'from 0 to 86400'],
    ['an input with U+0000', [{ ...nightly, input: '\0' }], 'cannot be stored as JSON'],
    [
      'more than 100 schedules',
      Array.from({ length: 101 }, (_, n) => ({ ...nightly, name: `n${n}` })),
      'process P has 101 schedules; 100 are possible',
    ],
  ])('a schedule with %s is rejected', (_what, schedules, message) => {
    expect(() => define(schedules)).toThrow(message)
  })

  it('a schedule is rejected if its input does not match the input of the process', () => {
    const input = z.object({ days: z.int() })
    expect(define([{ ...nightly, input: { days: 7 } }], input).schedules[0]?.input).toEqual({
      days: 7,
    })
    const wrong = () => define([{ ...nightly, input: { days: 'seven' } }], input)
    expect(wrong).toThrow('input of schedule nightly of P is not valid: InitialData.days')
    expect(wrong).not.toThrow('seven')
    expect(() => define([nightly], input)).toThrow('input of schedule nightly of P is not valid')
  })
})

describe('the priority of a schedule', () => {
  it('a run that a schedule starts has the priority of the schedule', () => {
    const of = (priority?: 'high' | 'normal') => {
      const process = defineProcess('P', {
        schedules: [{ ...nightly, ...(priority !== undefined && { priority }) }],
      }).step('a', (step) => step.complete())
      return transactionOf(process, process.schedules[0] as Schedule, 0, null).Priority
    }
    expect([of('high'), of('normal'), of()]).toEqual(['high', undefined, undefined])
  })
})

describe('the id of a scheduled run', () => {
  const at = Date.parse('2026-11-23T02:00:00Z')
  it("the id of a scheduled run consists of the schedule's name, the time in seconds, and the realm if there is one", () => {
    expect(scheduledId('nightly', at, null)).toBe('nightly@2026-11-23T02:00:00Z')
    expect(scheduledId('nightly', at, '9341')).toBe('nightly@2026-11-23T02:00:00Z/9341')
  })

  it('the id of a run that an operator has started contains milliseconds, so it never equals the id of a scheduled run', () => {
    expect(scheduledId('nightly', at, null, true)).toBe('nightly@2026-11-23T02:00:00.000Z')
  })

  it('the id of a scheduled run has at most 128 characters, even with the longest name and realm', () => {
    expect(scheduledId('a'.repeat(36), at + 1, 'r'.repeat(64)).length).toBeLessThanOrEqual(128)
  })
})
