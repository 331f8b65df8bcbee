import { describe, expect, it } from 'vitest'
import { readLines } from './read-lines.ts'

/** Returns a response whose body arrives in chunks of `size` bytes. */
const response = (text: string, size: number) => {
  const bytes = new TextEncoder().encode(text)
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    start(controller) {
      for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size))
      controller.close()
    },
  })
  return { body }
}
const linesOf = async (text: string, size: number, max = 100): Promise<readonly string[]> =>
  (await Array.fromAsync(readLines(response(text, size), max))).flat()

describe('the lines of a body', () => {
  it.each([1, 2, 5, 1_000])('are the same for chunks of %i bytes', async (size) => {
    expect(await linesOf('one\n\ntwé\nthree', size)).toEqual(['one', '', 'twé', 'three'])
    expect(await linesOf('one\n', size)).toEqual(['one'])
    expect(await linesOf('', size)).toEqual([])
  })

  it('are read in linear time, even if a line arrives in many pieces', async () => {
    expect(await linesOf('x'.repeat(1_000_000), 8, 1_000_000)).toEqual(['x'.repeat(1_000_000)])
  })

  it('may not be longer than the limit', async () => {
    expect(await linesOf(`${'x'.repeat(100)}\n${'y'.repeat(100)}`, 7)).toHaveLength(2)
    await expect(linesOf('x'.repeat(101), 7)).rejects.toThrow('a line of the response is too long')
  })
})
