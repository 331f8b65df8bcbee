import { describe, expect, expectTypeOf, it } from 'vitest'
import { processOf } from '../../test-support/process-of.ts'
import { type DataOf, defineStep, type Step, type StepItem } from './step.ts'

// This file tests types: `tsc` reports an unused `@ts-expect-error` if the line after it compiles. run-step.test.ts
// tests the behaviour of steps.
describe('the types of steps', () => {
  const order = (step: Step<{ number: string }>) =>
    step.execute({ url: step.initialData.number }, { parse: () => ({ Order: 'O-66' }) })
  const report = (step: Step<{ number: string }, typeof order>) =>
    step.complete(step.previous.data.Order.length)
  const csv = (step: Step<{ number: string }, typeof report, { order: typeof order }>) => {
    expectTypeOf(step.item('order')).toEqualTypeOf<StepItem<{ Order: string }>>()
    // @ts-expect-error the type of this step names no item `report`
    step.item('report')
    step.setStatus('Completed')
  }

  it('the data type of a step is known in the next step and in all later steps that declare this step', () => {
    expectTypeOf<Step<string>['previous']>().toEqualTypeOf<null>()
    expectTypeOf<Parameters<typeof report>[0]['previous']['data']>().toEqualTypeOf<{
      Order: string
    }>()
    expectTypeOf<Parameters<typeof csv>[0]['previous']['data']>().toEqualTypeOf<number>()
    expectTypeOf<Parameters<typeof csv>[0]['initialData']>().toEqualTypeOf<{ number: string }>()
  })

  it('defineStep() keeps the types of a step, and its confirm function must return the same data type as the step', () => {
    const confirmed = defineStep(order, {
      confirm: async (step) => {
        expectTypeOf(step.initialData).toEqualTypeOf<{ number: string }>()
        // @ts-expect-error confirm may query the target but not call execute
        void step.execute
        const found = await step.find(
          { url: 'http://x/', query: { key: step.idempotencyKey } },
          { parse: () => 'O-66' },
        )
        return found === null ? 'not_done' : step.complete({ Order: found.data })
      },
    })
    expectTypeOf<DataOf<typeof confirmed>>().toEqualTypeOf<{ Order: string }>()
    // @ts-expect-error confirm returns data of a different type than the step
    defineStep(order, { confirm: async (step) => step.complete({ order: 66 }) })
    // @ts-expect-error confirm returns neither a completion nor 'not_done'
    defineStep(order, { confirm: async () => {} })
    const { steps } = processOf('P', { steps: { order: confirmed, report, csv } })
    expect([...steps.values()].map(({ confirm }) => confirm !== undefined)).toEqual([
      true,
      false,
      false,
    ])
  })
})
