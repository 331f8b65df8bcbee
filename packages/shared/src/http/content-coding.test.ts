import {
  brotliCompressSync,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { contentCodings, decodeContent } from './content-coding.ts'

const text = Buffer.from('{"a":"ä"}')

describe('decoding the content of a message', () => {
  it.each<[string, Buffer]>([
    ['gzip', gzipSync(text)],
    ['x-gzip', gzipSync(text)],
    ['br', brotliCompressSync(text)],
    ['zstd', zstdCompressSync(text)],
    ['deflate', deflateSync(text)],
    ['deflate', deflateRawSync(text)],
    ['gzip, br', brotliCompressSync(gzipSync(text))],
    ['GZIP , identity', gzipSync(text)],
    ['', text],
  ])('decodes %j', async (header, body) => {
    const decoded = await decodeContent(body, contentCodings(header), 1_000)
    expect(decoded).toEqual({ bytes: text, problem: null })
  })

  it('stops at the limit, however small the coded body is', async () => {
    const bomb = gzipSync(gzipSync(Buffer.alloc(50_000_000)))
    const decoded = await decodeContent(bomb, ['gzip', 'gzip'], 100_000)
    expect(decoded.problem).toBe('too large')
    expect(decoded.bytes.length).toBeLessThanOrEqual(100_000)
  })

  it.each<[string, string, Buffer]>([
    ['unknown', 'exi', text],
    ['unknown', 'gzip, gzip, gzip, gzip', text],
    ['unknown', '__proto__', text],
    ['invalid', 'gzip', text],
    ['cut off', 'gzip', gzipSync(text).subarray(0, 15)],
  ])('reports a problem: %s (%s)', async (problem, header, body) => {
    expect((await decodeContent(body, contentCodings(header), 1_000)).problem).toBe(problem)
  })
})
