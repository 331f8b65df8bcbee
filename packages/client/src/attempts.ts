/** Sends a request, and repeats it after a temporary failure. */
import { ProblemError, retryAfterSeconds } from './problem.ts'

/** The settings that all requests of a client share. */
export interface Connection {
  readonly fetch: typeof fetch
  readonly key: string
  /** The maximum number of attempts for a request that may be repeated. */
  readonly attempts: number
  /** The pause before the second attempt, in milliseconds. It doubles with every further attempt. */
  readonly pauseMs: number
  /** How long an attempt waits for its response, in milliseconds. */
  readonly timeoutMs: number
}

export interface Attempts {
  /** Sends the request once. */
  readonly send: (signal: AbortSignal) => Promise<Response>
  /** Returns whether the request may be repeated. `response` is `null` if no response arrived. */
  readonly isRepeatable: (response: Response | null) => boolean
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
export async function sendWithAttempts(
  { attempts, pauseMs, timeoutMs }: Connection,
  { send, isRepeatable, signal, idempotencyKey = null }: Attempts,
): Promise<Response> {
  for (let attempt = 1; ; attempt += 1) {
    signal?.throwIfAborted()
    let response: Response | null = null
    let cause: unknown
    try {
      response = await withTimeout(timeoutMs, signal, send)
      if (!TEMPORARY.includes(response.status)) return response
    } catch (error) {
      signal?.throwIfAborted()
      cause = error
    }
    const waitSeconds = response === null ? null : retryAfterSeconds(response)
    const waitMs = Math.max(
      (waitSeconds ?? 0) * 1_000,
      // Full jitter spreads the attempts of clients whose requests failed at the same time.
      Math.random() * pauseMs * 2 ** (attempt - 1),
    )
    if (attempt >= attempts || waitMs > MAX_PAUSE_MS || !isRepeatable(response)) {
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

async function withTimeout<Result>(
  ms: number,
  signal: AbortSignal | null | undefined,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(new Error(`no response within ${ms} ms`)), ms)
  try {
    return await work(signal ? AbortSignal.any([signal, late.signal]) : late.signal)
  } finally {
    clearTimeout(timer)
  }
}
