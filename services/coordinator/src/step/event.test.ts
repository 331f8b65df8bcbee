import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { defineProcess } from './define-process.ts'
import { outlineOf } from './definition.ts'
import { eventPlaces } from './event.ts'

// This file also tests types: `tsc` reports an unused `@ts-expect-error` if the line after it compiles.
describe('an event in the definition of a process', () => {
  const bills = defineProcess('PayBill', { input: z.object({ amount: z.number() }) })
    .step('draft', (step) => step.complete(step.initialData.amount))
    .event('approved', { data: z.object({ approved: z.boolean() }), timeoutSeconds: 60 })
    .step('pay', (step) => {
      expectTypeOf(step.previous.data).toEqualTypeOf<{ approved: boolean }>()
      expectTypeOf(step.item('approved').data).toEqualTypeOf<{ approved: boolean }>()
      // @ts-expect-error there is no such event
      void (() => step.item('rejected'))
      return step.complete(1)
    })
    .event('answer', { timeoutSeconds: 60, onTimeout: 'continue', data: z.number() })
    .step('end', (step) => {
      expectTypeOf(step.previous.data).toEqualTypeOf<number | null>()
      return step.complete()
    })

  it('a definition knows its events, and where a run goes after each of them', () => {
    expect(bills.stepNames).toEqual(['draft', 'approved', 'pay', 'answer', 'end'])
    expect(outlineOf(bills)).toMatchObject({ events: ['approved', 'answer'] })
    expect(eventPlaces(bills)).toEqual([
      { kind: 'event', process: 'PayBill', place: 'approved', next: 'pay', onTimeout: 'fail' },
      { kind: 'event', process: 'PayBill', place: 'answer', next: 'end', onTimeout: 'continue' },
    ])
    expect(eventPlaces(defineProcess('P').event('only'))).toMatchObject([{ next: null }])
  })

  it('the names of events and steps must differ', () => {
    // @ts-expect-error the name is used
    expect(() => bills.event('draft')).toThrow('process PayBill has two steps draft')
    // @ts-expect-error the name is used
    expect(() => bills.step('approved', () => null)).toThrow('two steps approved')
  })

  it.each<[string, object, string]>([
    ['no schema as data', { data: {} }, 'data of event e of P must be a schema of zod 4'],
    ['a negative time', { timeoutSeconds: -1 }, 'timeoutSeconds of event e of P must be more'],
    ['more than a year', { timeoutSeconds: 40_000_000 }, 'timeoutSeconds of event e of P must be'],
    ['another end', { timeoutSeconds: 1, onTimeout: 'skip' }, 'onTimeout of event e of P must be'],
    ['an end without a time', { onTimeout: 'continue' }, 'has no effect without timeoutSeconds'],
    ['an unknown option', { timeout: 1 }, 'event e of P has no option timeout'],
  ])('an event with %s is rejected', (_, options, message) => {
    expect(() => defineProcess('P').event('e', options)).toThrow(message)
  })

  it('an invalid name is rejected, and so is data that JSON cannot express', () => {
    expect(() => defineProcess('P').event('1')).toThrow('1 cannot name an event of P')
    // @ts-expect-error a date is not JSON
    defineProcess('P').event('e', { data: z.date() })
  })
})

describe('a wait for a change in the definition of a process', () => {
  const valid = { entity: 'Invoice', id: () => '1', until: () => true } as const

  it.each<[string, object, string]>([
    ['an unknown entity', { entity: 'Invoices' }, 'entity of change c of P must be one of Account'],
    ['an id', { id: '1' }, 'id of change c of P must be a function'],
    ['no condition', { until: undefined }, 'until of change c of P must be a function'],
    ['another end', { onDeleted: 'skip' }, 'onDeleted of change c of P must be'],
    ['more than a year', { timeoutSeconds: 40_000_000 }, 'timeoutSeconds of change c of P must be'],
    ['an unknown option', { data: null }, 'change c of P has no option data'],
  ])('a change with %s is rejected', (_, options, message) => {
    expect(() => defineProcess('P').change('c', { ...valid, ...options })).toThrow(message)
  })

  it('later steps get the object, or null if the run may go on without it', () => {
    const chain = defineProcess('P').change('c', valid)
    chain.step('s', (step) => step.complete(step.previous.data['Balance'] ?? null))
    for (const may of [
      defineProcess('P').change('c', { ...valid, onDeleted: 'continue' }),
      defineProcess('P').change('c', { ...valid, when: () => true }),
    ])
      may.step('s', (step) =>
        // @ts-expect-error the data may be null
        step.complete(step.previous.data['Id'] ?? null),
      )
    // @ts-expect-error the condition is synchronous
    defineProcess('P').change('c', { ...valid, until: async () => true })
    expect(chain.stepNames).toEqual(['c'])
  })
})
