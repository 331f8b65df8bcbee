import type { IncomingMessage, ServerResponse } from 'node:http'

/** The largest body that is buffered so that it can be sent again. */
const MAX_BUFFERED_BYTES = 1_048_576

/**
 * A request body that can be sent more than once while it is small.
 *
 * A body with a small `Content-Length` is read completely before it is sent, so that a slow caller does not occupy a
 * concurrency slot of its realm. Any other body is streamed as it arrives, and also buffered until it grows too large.
 */
export interface RequestBody {
  /** False once bytes have been sent that are no longer buffered. */
  readonly isReplayable: boolean
  /** The `Content-Length`; `null` for a chunked body. */
  readonly length: number | null
  /** Returns the body from its first byte for the HTTP client. `onChunk` gets the number of bytes received so far. */
  open(onChunk: (received: number) => void): Promise<Buffer> | AsyncIterable<Buffer>
  /** Reads and discards the rest of the body, so that the caller's connection can be used for another request. */
  discard(): Promise<void>
}

/**
 * Returns the body of `request`; `null` if it has none. Reading starts with the first `open`. A caller that sent
 * `Expect: 100-continue` gets its `100 Continue` then, that is, not before its call has been accepted.
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
  let currentAttempt = 0
  const begin = (): AsyncIterator<Buffer> => {
    if (iterator !== null) return iterator
    if (expectsContinue) response.writeContinue()
    iterator = request.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>
    return iterator
  }

  // Returns the n-th chunk. Attempts share the chunks, so an aborted attempt does not consume any.
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
      if (next.done === true || attempt !== currentAttempt) return
      onChunk(received)
      if (received > MAX_BUFFERED_BYTES) isReplayable = false
      if (!isReplayable) for (const read of chunks.keys()) if (read <= index) chunks.delete(read)
      yield next.value
    }
  }

  async function collect(onChunk: (received: number) => void): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of stream((currentAttempt += 1), onChunk)) parts.push(part)
    const [first] = parts
    return parts.length === 1 && first !== undefined ? first : Buffer.concat(parts)
  }

  let whole: Promise<Buffer> | null = null
  const isSmall = encoding === undefined && Number(length) <= MAX_BUFFERED_BYTES
  return {
    length: encoding === undefined ? Number(length) : null,
    get isReplayable() {
      return isReplayable
    },
    open: (onChunk) =>
      isSmall ? (whole ??= collect(onChunk)) : stream((currentAttempt += 1), onChunk),
    async discard() {
      currentAttempt += 1
      chunks.clear()
      // If reading has not begun, Node discards the body itself when the response ends.
      if (iterator === null) return
      try {
        while ((await iterator.next()).done !== true);
      } catch {
        // The caller has closed its connection.
      }
    },
  }
}
