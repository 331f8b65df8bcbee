import type { IncomingMessage, ServerResponse } from 'node:http'

/** The largest body that is kept so that it can be sent again. */
const KEPT_BYTES = 1_048_576

/**
 * A request body that can be sent more than once while it is small.
 *
 * One of known, small length is read whole before it is sent: a slow caller holds no place at the
 * accounting API. Any other streams as it arrives, and is kept beside until it grows too large.
 */
export interface RequestBody {
  /** False once bytes have gone out that are not kept. */
  readonly isReplayable: boolean
  /** As its header says; null for one in chunks. */
  readonly length: number | null
  /** What to hand to the upstream client, from the first byte on. `onChunk` is told how far it has come. */
  open(onChunk: (received: number) => void): Promise<Buffer> | AsyncIterable<Buffer>
  /** Reads what is still to come and forgets it, so that the connection can go on. */
  discard(): Promise<void>
}

/**
 * The body of `request`, null when it has none. Reading starts with the first `open`; a caller that
 * expects `100 Continue` gets it then, not before the call was found acceptable.
 */
export function requestBody(
  request: IncomingMessage,
  response: ServerResponse,
  expectsContinue: boolean,
): RequestBody | null {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers
  if (encoding === undefined && (length === undefined || Number(length) === 0)) return null
  const chunks = new Map<number, Promise<IteratorResult<Buffer>>>()
  let received = 0
  let isReplayable = true
  let iterator: AsyncIterator<Buffer> | null = null
  let newest = 0
  const begin = (): AsyncIterator<Buffer> => {
    if (iterator !== null) return iterator
    if (expectsContinue) response.writeContinue()
    iterator = request.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>
    return iterator
  }

  // The n-th chunk, read once, whoever asks: an attempt that was given up takes none along.
  function chunk(index: number): Promise<IteratorResult<Buffer>> {
    const known = chunks.get(index)
    if (known !== undefined) return known
    const next = begin()
      .next()
      .then((result) => {
        if (result.done !== true) received += result.value.length
        return result
      })
    chunks.set(index, next)
    return next
  }

  async function* stream(
    attempt: number,
    onChunk: (received: number) => void,
  ): AsyncGenerator<Buffer> {
    for (let index = 0; ; index += 1) {
      const next = await chunk(index)
      if (next.done === true || attempt !== newest) return
      onChunk(received)
      if (received > KEPT_BYTES) isReplayable = false
      if (!isReplayable) for (const read of chunks.keys()) if (read <= index) chunks.delete(read)
      yield next.value
    }
  }

  async function collect(onChunk: (received: number) => void): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of stream((newest += 1), onChunk)) parts.push(part)
    const [first] = parts
    return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts)
  }

  let whole: Promise<Buffer> | null = null
  const isSmall = encoding === undefined && Number(length) <= KEPT_BYTES
  return {
    length: encoding === undefined ? Number(length) : null,
    get isReplayable() {
      return isReplayable
    },
    open: (onChunk) => (isSmall ? (whole ??= collect(onChunk)) : stream((newest += 1), onChunk)),
    async discard() {
      newest += 1
      chunks.clear()
      // Never begun: Node itself passes over a body that nobody has touched.
      if (iterator === null) return
      try {
        while ((await iterator.next()).done !== true);
      } catch {
        // The caller has gone.
      }
    },
  }
}
