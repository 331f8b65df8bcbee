import { describe, expect, it } from 'vitest'
import { readLines, readEvents } from './response-body.ts'

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

const STREAM = `: connected\n\nevent: transaction\nid: a/1\ndata: {"n": "é"}\n\ndata: one\r\ndata:two\r\n\r\nid: lost\ndata: without end\n`

/** Returns a body that arrives in chunks of `size` bytes, so that characters and line breaks are split. */
const body = (size: number, text = STREAM): ReadableStream<Uint8Array<ArrayBuffer>> => {
  const bytes = new TextEncoder().encode(text)
  return new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size))
      controller.close()
    },
  })
}

describe('the reader of server-sent events', () => {
  it.each([1, 2, 7, 1_000])(
    'the reader of server-sent events returns the same events for chunks of %i bytes',
    async (size) => {
      expect(await Array.fromAsync(readEvents({ body: body(size) }))).toEqual([
        null,
        { name: 'transaction', id: 'a/1', data: '{"n": "é"}' },
        { name: 'message', id: null, data: 'one\ntwo' },
      ])
    },
  )

  it('the reader of server-sent events rejects an event that does not end', async () => {
    const chunk = new TextEncoder().encode(`data: ${'x'.repeat(65_536)}`)
    const endless = new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull: (controller) => controller.enqueue(chunk),
    })
    await expect(Array.fromAsync(readEvents({ body: endless }))).rejects.toThrow('is too long')
  })

  it.each([
    ['one line', `data: ${'x'.repeat(1_000_000)}\n\n`, 1_000_000],
    ['many lines', `${`data: ${'x'.repeat(10)}\n`.repeat(60_000)}\n`, 659_999],
  ])(
    'the reader of server-sent events looks at each character once: an event of %s in pieces of 8 bytes',
    async (_, text, length) => {
      // A reader that searches or copies what it already has, with each piece, would need more time than a test may.
      const [event] = await Array.fromAsync(readEvents({ body: body(8, text) }))
      expect(event?.data).toHaveLength(length)
    },
  )

  it.each([
    ['in one line', 'x'],
    ['in many lines', 'x\ndata: '],
  ])('the reader of server-sent events rejects an event of more than 1 MiB %s', async (_, part) => {
    const text = `data: ${part.repeat(Math.ceil(1_048_577 / part.replace('\n', '').length))}\n\n`
    await expect(Array.fromAsync(readEvents({ body: body(65_536, text) }))).rejects.toThrow(
      'is too long',
    )
  })
})
