import { expect, it } from 'vitest'
import { z } from 'zod'
import { checkedInput } from './input-check.ts'

const schema = z.object({ id: z.string(), count: z.coerce.number().default(1) })

it('checkedInput() returns the data that the schema returns', () => {
  expect(checkedInput(schema, { id: 'a', count: '2' })).toEqual({ input: { id: 'a', count: 2 } })
  expect(checkedInput(schema, { id: 'a' })).toEqual({ input: { id: 'a', count: 1 } })
})

it('checkedInput() returns the path of each invalid value, without the value', () => {
  const checked = checkedInput(z.object({ a: z.object({ b: z.int() }), c: z.string() }), {
    a: { b: 'secret' },
  })
  expect(checked).toEqual({
    problems: [
      expect.stringMatching(/^InitialData\.a\.b: /),
      expect.stringMatching(/^InitialData\.c: /),
    ],
  })
  expect(JSON.stringify(checked)).not.toContain('secret')
})

it('checkedInput() accepts any data if there is no schema', () => {
  expect(checkedInput(null, [1])).toEqual({ input: [1] })
})

it('checkedInput() rejects the data if a refinement of the schema throws', () => {
  const throwing = schema.refine(() => {
    throw new RangeError('secret')
  })
  expect(checkedInput(throwing, { id: 'a' })).toEqual({
    problems: ['InitialData: the input schema of the process threw RangeError'],
  })
})

it('checkedInput() rejects the data if a refinement is asynchronous, and handles a rejected promise of the refinement', async () => {
  let calls = 0
  const asynchronous = schema.refine(async () => {
    calls += 1
    await Promise.reject(new Error('refinement'))
    return true
  })
  // If the rejection were not handled, Vitest would fail this test file.
  expect(checkedInput(asynchronous, { id: 'a' })).toEqual({
    problems: ['InitialData: the input schema of the process is asynchronous'],
  })
  await new Promise((resolve) => {
    setImmediate(resolve)
  })
  expect(calls).toBe(1)
})
