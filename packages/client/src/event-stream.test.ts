import { describe, expect, it } from 'vitest'
import { readEvents } from './event-stream.ts'

const STREAM = `: connected\n\nevent: transaction\nid: a/1\ndata: {"n": "é"}\n\ndata: one\r\ndata:two\r\n\r\nid: lost\ndata: without end\n`

/** Returns a body that arrives in chunks of `size` bytes, so that characters and line breaks are split. */
const body = (size: number): ReadableStream<Uint8Array<ArrayBuffer>> => {
  const bytes = new TextEncoder().encode(STREAM)
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
})
