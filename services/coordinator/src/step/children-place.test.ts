import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineProcess } from './define-process.ts'

// This file also tests types: `tsc` reports an unused `@ts-expect-error` if the line after it compiles.
const line = defineProcess('Line', { input: z.object({ no: z.number() }) }).step('post', (step) =>
  step.complete(String(step.initialData.no)),
)
const start = () => defineProcess('Order', { input: z.array(z.number()) })

describe('the definition of a place with children', () => {
  it('a later step reads the counts, and the data of the children', () => {
    const order = start()
      .forEach('lines', line, {
        items: (step) => step.initialData.map((no) => ({ id: no, data: { no } })),
      })
      .step('sum', async (step) => {
        const total: number = step.previous.data.total
        const texts: (string | null)[] = []
        for await (const child of step.children('lines')) {
          texts.push(child.data)
          // @ts-expect-error the data of the children are texts
          const wrong: number | null = child.data
          void wrong
        }
        // @ts-expect-error there is no such place
        void (() => step.children('line'))
        return step.complete([total, texts.length])
      })
    expect(order.stepNames).toEqual(['lines', 'sum'])
  })

  it('wrong items do not compile', () => {
    // @ts-expect-error the children need another type of data
    start().forEach('lines', line, { items: () => [{ id: 1, data: { no: 'x' } }] })
    // @ts-expect-error an id is needed
    start().forEach('lines', line, { items: () => [{ data: { no: 1 } }] })
    expect.assertions(0)
  })

  it.each([
    [{ concurrent: 0 }, 'concurrent of forEach lines of Order must be a whole number, 1 or more'],
    [{ tolerate: -1 }, 'tolerate of forEach lines of Order must be a whole number'],
    [{ tolerate: '101%' }, 'tolerate of forEach lines of Order must be a whole number'],
    [{ tolerates: 1 }, 'forEach lines of Order has no option tolerates'],
    [{ items: undefined }, 'items of forEach lines of Order must be a function'],
  ])('%j is rejected', (options, message) => {
    const given = { items: () => [], ...options } as never
    expect(() => start().forEach('lines', line, given)).toThrow(message)
  })

  it('a process without steps cannot be that of children', () => {
    expect(() =>
      start().forEach('lines', defineProcess('Empty') as never, { items: () => [] }),
    ).toThrow('forEach lines of Order needs the process of its children')
  })
})
