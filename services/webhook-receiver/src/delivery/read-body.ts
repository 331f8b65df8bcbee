import { IntegrationError } from '@integration-host/shared/errors'
import type { BodyMemory } from './body-memory.ts'

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
