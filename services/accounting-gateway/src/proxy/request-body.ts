import type { IncomingMessage, ServerResponse } from 'node:http'

/** Maximum size of a body that is buffered for another attempt, in bytes. */
const MAX_BUFFERED_BYTES = 1_048_576

/**
 * A request body that can be sent more than once if it is small.
 *
 * A body with a small `Content-Length` is read completely before the first attempt. A slow caller therefore does not
 * occupy a concurrency slot of its realm. Any other body is sent upstream while it arrives, and is buffered until it
 * exceeds the maximum size.
 */
export interface RequestBody {
  /** True if the body can be sent again; false after bytes were sent that are no longer buffered. */
  readonly isReplayable: boolean
  /** The body's `Content-Length`; `null` for a chunked body. */
  readonly length: number | null
  /**
   * Returns the body from its first byte, in the type that the HTTP client accepts. Calls `onChunk` with the total
   * number of bytes received so far.
   */
  open(
    onChunk: (received: number) => void,
  ): readonly Buffer[] | Promise<readonly Buffer[]> | AsyncIterable<Buffer>
  /** Reads and discards the rest of the body, so that the caller can send another request on the same connection. */
  discard(): Promise<void>
}

/** Returns a body whose parts have all arrived. */
export const bufferedBody = (parts: readonly Buffer[]): RequestBody => ({
  isReplayable: true,
  length: parts.reduce((sum, { length }) => sum + length, 0),
  open: () => parts,
  discard: async () => {},
})

/**
 * Returns the body of `request`; `null` if the request has no body. Reading starts with the first call of `open`. A
 * caller that sent `Expect: 100-continue` gets `100 Continue` at that time. If the request is rejected earlier, the
 * caller need not send its body.
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

  // Returns the n-th chunk of the body. All attempts read the same buffered chunks, so an aborted attempt consumes none
  // of them.
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

  async function collect(onChunk: (received: number) => void): Promise<readonly Buffer[]> {
    const parts: Buffer[] = []
    for await (const part of stream((currentAttempt += 1), onChunk)) parts.push(part)
    return parts
  }

  let whole: Promise<readonly Buffer[]> | null = null
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
      // If no part of the body was read yet, Node discards the body itself when the response ends.
      if (iterator === null) return
      try {
        while ((await iterator.next()).done !== true);
      } catch {
        // The caller has closed its connection, so there is nothing left to read.
      }
    },
  }
}
