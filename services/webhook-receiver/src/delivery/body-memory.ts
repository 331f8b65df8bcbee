/**
 * The memory that all deliveries in flight share. The sender of a delivery is unknown until its whole body has arrived,
 * so clients without a signature must not be able to occupy this memory.
 *
 * B1  The bodies in flight never have more than `maxBytes` bytes together.
 * B2  Only bytes that have arrived are counted. Announcing a large body occupies nothing.
 * B3  If no byte is free, the body that has been arriving longest is dropped. A provider's body arrives within
 *     milliseconds, so a body that arrives for longer comes from a client that withholds the rest. A complete body is
 *     never dropped.
 */
import { IntegrationError } from '@integration-host/shared/errors'

export interface BodyMemory {
  /** Begins a body. `onDropped` is called at most once, with the reason, if the body is dropped for another one. */
  begin(onDropped: (reason: IntegrationError) => void): BodyShare
  /** The bytes of all bodies in flight. */
  readonly bytes: number
}

/** The memory of one body, which is occupied until it is disposed. */
export interface BodyShare extends Disposable {
  /**
   * Occupies memory for bytes that have arrived.
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
  /** The bodies that are not complete, in the order of their arrival. */
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
