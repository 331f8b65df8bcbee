/**
 * Limits the memory that the bodies of all deliveries in flight share. The sender of a delivery is unknown until its
 * whole body has arrived, so clients without a signature must not be able to occupy this memory.
 *
 * B1  Together, the bodies in flight never occupy more than `maxBytes` bytes.
 * B2  Only bytes that have arrived are counted. A `Content-Length` alone occupies nothing.
 * B3  If no byte is free, the body that has been arriving longest is dropped. A provider's body arrives within
 *     milliseconds, so a body that arrives for longer comes from a client that withholds the rest. A complete body is
 *     never dropped.
 */
import { IntegrationError } from '@integration-host/shared/errors'

export interface BodyMemory {
  /**
   * Registers a new body. `onDropped` is called at most once, with the reason, if the body is dropped to make room for
   * another body.
   */
  begin(onDropped: (reason: IntegrationError) => void): BodyShare
  /** The number of bytes that all bodies in flight occupy. */
  readonly bytes: number
}

/** The memory of one body. Disposing the object frees the memory. */
export interface BodyShare extends Disposable {
  /**
   * Reserves memory for bytes that have arrived.
   *
   * @throws {IntegrationError} `too_many_deliveries` if no memory is free and no other body can be dropped for this
   * one, or if this body has been dropped.
   */
  add(bytes: number): void
  /** Marks the body as complete, so that it is not dropped any more. */
  complete(): void
}

interface Share {
  bytes: number
  isDropped: boolean
  readonly drop: (reason: IntegrationError) => void
}

export function createBodyMemory(maxBytes: number): BodyMemory {
  /** The incomplete bodies, in the order of their arrival. */
  const arriving = new Set<Share>()
  let held = 0

  function free(share: Share): void {
    arriving.delete(share)
    held -= share.bytes
    share.bytes = 0
  }

  function makeRoom(bytes: number, forShare: Share): void {
    while (held + bytes > maxBytes) {
      const [longest] = arriving
      if (longest === undefined || longest === forShare) throw tooMany()
      free(longest)
      longest.isDropped = true
      longest.drop(tooMany())
    }
  }

  return {
    begin(onDropped) {
      const share: Share = { bytes: 0, isDropped: false, drop: onDropped }
      arriving.add(share)
      return {
        add(bytes) {
          if (share.isDropped) throw tooMany()
          makeRoom(bytes, share)
          held += bytes
          share.bytes += bytes
        },
        complete: () => void arriving.delete(share),
        [Symbol.dispose]: () => free(share),
      }
    },
    get bytes() {
      return held
    },
  }
}

const tooMany = (): IntegrationError =>
  new IntegrationError('too_many_deliveries', 'too many bodies are in flight', {
    retryAfterSeconds: 10,
  })

export interface BodyLimits {
  readonly memory: BodyMemory
  readonly maxBytes: number
  /** A signal that aborts at the deadline for the complete body. */
  readonly deadline: AbortSignal
}

/** A complete request body. The body occupies memory until it is disposed. */
export interface Body extends Disposable {
  readonly bytes: Buffer
}

/**
 * Reads a complete request body.
 *
 * @throws {IntegrationError} `payload_too_large` if the body has more than `maxBytes`; `request_timeout` if the body is
 * not complete at the deadline; `too_many_deliveries` if the bodies in flight occupy all memory; `invalid_request` if
 * the client ends the body early.
 */
export async function readBody(
  stream: ReadableStream<Uint8Array> | null,
  { memory, maxBytes, deadline }: BodyLimits,
): Promise<Body> {
  const aborted = Promise.withResolvers<never>()
  aborted.promise.catch(() => {})
  const onDeadline = (): void =>
    aborted.reject(new IntegrationError('request_timeout', 'the body did not arrive in time'))
  deadline.addEventListener('abort', onDeadline, { once: true })
  const share = memory.begin((reason) => aborted.reject(reason))
  const reader = stream?.getReader()
  const chunks: Uint8Array[] = []
  let size = 0
  try {
    if (deadline.aborted) onDeadline()
    for (;;) {
      const chunk = await Promise.race([reader?.read().catch(incomplete), aborted.promise])
      if (chunk === undefined || chunk.done) break
      size += chunk.value.length
      if (size > maxBytes) throw tooLarge(maxBytes)
      share.add(chunk.value.length)
      chunks.push(chunk.value)
    }
    share.complete()
    return { bytes: Buffer.concat(chunks), [Symbol.dispose]: () => share[Symbol.dispose]() }
  } catch (error) {
    share[Symbol.dispose]()
    throw error
  } finally {
    deadline.removeEventListener('abort', onDeadline)
    // The stream is not cancelled, because cancelling would destroy the socket before the response is sent.
    reader?.releaseLock()
  }
}

export const tooLarge = (maxBytes: number): IntegrationError =>
  new IntegrationError('payload_too_large', `the body may have at most ${maxBytes} bytes`)

// Converts the error of a client that closed its connection too early. This is not a failure of the service.
function incomplete(cause: unknown): never {
  throw new IntegrationError('invalid_request', 'the body is not complete', { cause })
}
