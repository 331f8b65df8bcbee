/**
 * Limits how many code exchanges run at the same time.
 *
 * Even a client without a service key can cause code exchanges: it starts an authorization and sends a callback with a
 * made-up code. Each exchange is a request with the client id of this installation. After too many requests, the
 * provider would throttle the refreshes of this installation as well.
 *
 * Holders of a service key have separate permits, so that other callers cannot delay them. One key may hold at most half
 * of the places for exchanges that run or wait. Browsers wait in a queue that is fair between their networks, so that a
 * client that sends many callbacks delays its own network.
 */
import { type PlaceLimits, Places } from '@integration-host/shared/access/places'
import { IntegrationError } from '@integration-host/shared/errors'
import { createSemaphore, type QueueLimits } from '@integration-host/shared/process/semaphore'

/** The kind of caller that causes a code exchange: a holder of a service key, or a browser without a key. */
export type ExchangeCaller = 'browser' | 'key'

/** The number of code exchanges that one process runs at the same time, by kind of caller. */
const PERMITS: Readonly<Record<ExchangeCaller, number>> = { browser: 8, key: 8 }

const QUEUES: Readonly<Record<ExchangeCaller, QueueLimits>> = {
  browser: { queueLength: 32, waitMs: 4_000 },
  key: { queueLength: 512, waitMs: 30_000 },
}

/** How many exchanges with service keys may run or wait at the same time in one process. */
const PLACES: PlaceLimits = {
  total: PERMITS.key + QUEUES.key.queueLength,
  perKey: (PERMITS.key + QUEUES.key.queueLength) / 2,
}

/**
 * The minimum time for which a browser holds a permit, in milliseconds. With 8 permits, browsers cause at most 8
 * exchanges a second.
 */
const MIN_BROWSER_PERMIT_MS = 1_000

const RETRY_AFTER_SECONDS = 5

export interface ExchangePermit {
  /**
   * Releases the permit. If `wasUsed` is false, the caller has sent and stored nothing, so another caller can get the
   * permit at once.
   */
  release(wasUsed: boolean): void
}

export interface ExchangeAdmission {
  /**
   * Waits for a permit. `network` is the network of the caller: the networks get their turns one after the other.
   *
   * @param shareOf the key to whose share the exchange belongs (`Caller.shareOf`)
   * @throws {IntegrationError} `busy` if the queue or the share is full, or the wait is too long.
   */
  admit(caller: ExchangeCaller, network: string, shareOf: string | null): Promise<ExchangePermit>
}

/** Returns the error for a caller that must try again later. */
export const busy = (): IntegrationError =>
  new IntegrationError('busy', 'too many authorizations are being completed; retry', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  })

export function createExchangeAdmission(): ExchangeAdmission {
  const semaphores = {
    browser: createSemaphore(PERMITS.browser),
    key: createSemaphore(PERMITS.key),
  }
  const places = new Places(PLACES)
  return {
    async admit(caller, network, shareOf) {
      const freePlace = caller === 'key' ? places.take({ shareOf }) : () => {}
      if (freePlace === null) throw busy()
      const permit = await semaphores[caller].acquire({ ...QUEUES[caller], lane: network })
      if (permit === null) freePlace()
      if (permit === null) throw busy()
      const release = (): void => {
        freePlace()
        permit()
      }
      const admittedAt = performance.now()
      return {
        release(wasUsed) {
          const heldMs = performance.now() - admittedAt
          if (!wasUsed || caller === 'key' || heldMs >= MIN_BROWSER_PERMIT_MS) release()
          // `unref` keeps this timer from delaying the shutdown of the process.
          else setTimeout(release, MIN_BROWSER_PERMIT_MS - heldMs).unref()
        },
      }
    },
  }
}
