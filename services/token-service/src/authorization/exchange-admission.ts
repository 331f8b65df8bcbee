/**
 * Limits how many code exchanges run at the same time.
 *
 * Even a client without a service key can cause code exchanges: it starts an authorization and sends a callback with a
 * made-up code. Each exchange is a request with the client id of this installation. After too many requests, the
 * provider would throttle the refreshes of this installation as well.
 *
 * Holders of a service key have separate permits, so that other callers cannot delay them; the keys get their turns one after the other. Browsers wait in a queue that
 * is fair between their networks, so that a client that sends many callbacks delays its own network.
 */
import { IntegrationError } from '@integration-host/shared/errors'
import { createSemaphore, type QueueLimits } from '@integration-host/shared/process/limits'

/** The kind of caller that causes a code exchange: a holder of a service key, or a browser without a key. */
export type ExchangeCaller = 'browser' | 'key'

/** The number of code exchanges that one process runs at the same time, by kind of caller. */
const PERMITS: Readonly<Record<ExchangeCaller, number>> = { browser: 8, key: 8 }

const QUEUES: Readonly<Record<ExchangeCaller, QueueLimits>> = {
  browser: { queueLength: 32, waitMs: 4_000 },
  key: { queueLength: 512, waitMs: 30_000 },
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
   * Waits for a permit. `lane` is the key of the caller, or its network: they get their turns one after the other.
   *
   * @throws {IntegrationError} `busy` if the queue is full or the wait is too long.
   */
  admit(caller: ExchangeCaller, lane: string): Promise<ExchangePermit>
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
  return {
    async admit(caller, lane) {
      const release = await semaphores[caller].acquire({ ...QUEUES[caller], lane })
      if (release === null) throw busy()
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
