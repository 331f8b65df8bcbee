import { setImmediate } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { acceptedKey, concurrencyOf } from './concurrency.ts'

const accepted = (keyOf: (data: never) => unknown, data: unknown, input: z.ZodType | null = null) =>
  acceptedKey(
    { input, concurrency: concurrencyOf('P', { concurrency: 1, concurrencyKey: keyOf }) },
    data,
    null,
  )

describe('a limit for each company', () => {
  const concurrency = concurrencyOf('P', { concurrency: { perKey: 1 } })

  it('the concurrency key is the realm of the run, and the runs without a realm have one key together', () => {
    const key = (realm: string | null) => acceptedKey({ input: null, concurrency }, {}, realm)
    expect(key('9130354674010826')).toEqual({ key: '9130354674010826' })
    expect(key(null)).toEqual({ key: '(none)' })
  })

  it('initial data that does not match the input of the process has no key', () => {
    expect(acceptedKey({ input: z.string(), concurrency }, 7, 'r1')).toHaveProperty('problems')
  })
})

describe('the function concurrencyKey', () => {
  it('if concurrencyKey returns a promise, the initial data is rejected, and a rejection of the promise is handled', async () => {
    const rejections: unknown[] = []
    const onRejection = (reason: unknown): void => void rejections.push(reason)
    process.on('unhandledRejection', onRejection)
    onTestFinished(() => void process.off('unhandledRejection', onRejection))
    const key = async (): Promise<string> => {
      throw new Error('no such customer')
    }
    expect(accepted(key, {})).toEqual({
      problems: [expect.stringMatching(/must return a text/)],
    })
    await setImmediate() // Node reports an unhandled rejection only after all microtasks
    expect(rejections).toEqual([])
  })

  it.each([
    ['without an input schema', null],
    ['with an input schema that returns its data unchanged', z.unknown()],
  ])('%s, the function concurrencyKey cannot change the data that is stored', (_, input) => {
    const data = { lines: ['b', 'a'] }
    expect(accepted(({ lines }: typeof data) => lines.splice(0, 1)[0], data, input)).toEqual({
      key: 'b',
    })
    expect(data).toEqual({ lines: ['b', 'a'] })
  })
})
