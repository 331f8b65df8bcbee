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
