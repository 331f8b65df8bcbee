/** Removes the content codings of a received body (RFC 9110 §8.4) within a limit of size. */
import {
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib'

const decoders = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  br: createBrotliDecompress,
  zstd: createZstdDecompress,
  deflate: createInflate,
} as const

/** No server applies more codings than this. The limit bounds the work that a header can cause. */
const MAX_CODINGS = 3

/**
 * A body without its content codings. If `problem` is not `null`, `bytes` is only what could be decoded:
 *
 * - `unknown`: the header names a coding that this module does not know, or too many codings.
 * - `invalid`: the body is not in the coding that the header names.
 * - `cut off`: the coded body ends too early.
 * - `too large`: the decoded body exceeds the limit.
 */
export interface DecodedBody {
  readonly bytes: Buffer
  readonly problem: 'unknown' | 'invalid' | 'cut off' | 'too large' | null
}

/**
 * Returns the codings in a `Content-Encoding` header in the order in which they were applied, in lower case and without
 * `identity`. The list is empty if the body is not coded.
 */
export const contentCodings = (header: string | null | undefined): readonly string[] =>
  (header ?? '')
    .toLowerCase()
    .split(',', 100)
    .map((coding) => coding.trim())
    .filter((coding) => coding !== '' && coding !== 'identity')

/** Decodes a body whose `Content-Encoding` header names `codings`. The decoded body has at most `limitBytes`. */
export async function decodeContent(
  body: Buffer,
  codings: readonly string[],
  limitBytes: number,
): Promise<DecodedBody> {
  if (codings.length > MAX_CODINGS) return { bytes: body, problem: 'unknown' }
  let bytes = body
  for (const coding of codings.toReversed()) {
    if (!Object.hasOwn(decoders, coding)) return { bytes, problem: 'unknown' }
    const decoded = await decodeOne(bytes, coding as keyof typeof decoders, limitBytes)
    if (decoded.problem !== null) return decoded
    bytes = decoded.bytes
  }
  return { bytes, problem: null }
}

async function decodeOne(
  body: Buffer,
  coding: keyof typeof decoders,
  limitBytes: number,
): Promise<DecodedBody> {
  const decoded = await run(decoders[coding](), body, limitBytes)
  // Some servers send `deflate` without the zlib header (RFC 9110 §8.4.1.2).
  return coding === 'deflate' && decoded.problem === 'invalid' && decoded.bytes.length === 0
    ? run(createInflateRaw(), body, limitBytes)
    : decoded
}

/** Stops as soon as the limit is exceeded, so that a small body cannot inflate to a large one in memory. */
function run(
  decoder: ReturnType<(typeof decoders)[keyof typeof decoders]>,
  body: Buffer,
  limitBytes: number,
): Promise<DecodedBody> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    let size = 0
    const finish = (problem: DecodedBody['problem']): void => {
      decoder.destroy()
      resolve({ bytes: Buffer.concat(chunks, Math.min(size, limitBytes)), problem })
    }
    decoder.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      size += chunk.length
      if (size > limitBytes) finish('too large')
    })
    decoder.once('end', () => finish(null))
    decoder.on('error', ({ code }: NodeJS.ErrnoException) =>
      finish(code === 'Z_BUF_ERROR' ? 'cut off' : 'invalid'),
    )
    // A checksum ends the body. What precedes it is written first, so that a wrong checksum does not cost the data.
    decoder.write(body.subarray(0, -8))
    decoder.write(body.subarray(-8, -4))
    decoder.end(body.subarray(-4))
  })
}
