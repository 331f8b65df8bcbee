/** Sends a request, and repeats it after a temporary failure. */
import { backoffMs } from '@integration-host/shared/process/backoff'
import { ProblemError, retryAfterSeconds } from './problem.ts'

export interface AttemptSettings {
  /** The maximum number of attempts for a request that may be repeated. */
  readonly attempts: number
  /** The pause before the second attempt, in milliseconds. It doubles with every further attempt. */
  readonly pauseMs: number
}

/** What decides about a further attempt. */
interface Answered {
  readonly status: number
  readonly headers: Pick<Headers, 'get'>
  readonly body?: Response['body']
}

export interface Attempts<R extends Answered> {
  /** Sends the request once. Rejects if no response arrives. */
  readonly send: () => Promise<R>
  readonly isRepeatable: () => boolean
  readonly signal?: AbortSignal | null | undefined
  readonly idempotencyKey?: string | null
}

/** The statuses of a temporary failure: too many calls, or an unavailable server or gateway. */
const TEMPORARY: readonly number[] = [429, 502, 503, 504]
/**
 * The longest pause. If `Retry-After` is longer, the response is returned without a further attempt, and the caller
 * decides whether to wait that long.
 */
const MAX_PAUSE_MS = 30_000

/**
 * Returns the first response that is not a temporary failure, or else the response to the last attempt.
 *
 * @throws {ProblemError} `connection_failed` if the last attempt got no response.
 * @throws the reason of `signal` if it is aborted.
 */
export async function sendWithAttempts<R extends Answered>(
  { attempts, pauseMs }: AttemptSettings,
  { send, isRepeatable, signal, idempotencyKey = null }: Attempts<R>,
): Promise<R> {
  for (let attempt = 1; ; attempt += 1) {
    signal?.throwIfAborted()
    let response: R | null = null
    let cause: unknown
    try {
      response = await send()
      if (!TEMPORARY.includes(response.status)) return response
    } catch (error) {
      signal?.throwIfAborted()
      cause = error
    }
    const waitSeconds = response === null ? null : retryAfterSeconds(response)
    const waitMs = Math.max(
      (waitSeconds ?? 0) * 1_000,
      // Full jitter spreads the attempts of clients whose requests failed at the same time.
      backoffMs(attempt, { baseMs: pauseMs, capMs: Infinity, random: Math.random() }),
    )
    if (attempt >= attempts || waitMs > MAX_PAUSE_MS || !isRepeatable()) {
      if (response !== null) return response
      throw new ProblemError(
        { code: 'connection_failed', title: 'No response arrived', idempotencyKey },
        { cause },
      )
    }
    await response?.body?.cancel()
    await pause(waitMs, signal)
  }
}

/** Resolves after `ms` milliseconds; rejects with the reason of `signal` if it is aborted. */
export function pause(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer)
      reject(signal?.reason as Error)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    if (signal?.aborted === true) stop()
    else signal?.addEventListener('abort', stop, { once: true })
  })
}

/** Does work that is aborted after `ms` milliseconds, and when `signal` is aborted. */
export async function withTimeout<Result>(
  ms: number,
  signal: AbortSignal | null | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const late = new AbortController()
  const timer = setTimeout(
    () => late.abort(new DOMException(`no response within ${ms} ms`, 'TimeoutError')),
    ms,
  )
  try {
    return await work(signal ? AbortSignal.any([signal, late.signal]) : late.signal)
  } finally {
    clearTimeout(timer)
  }
}
