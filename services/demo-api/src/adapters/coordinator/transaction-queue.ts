import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { parseRetryAfter } from '@integration-host/shared/http/retry-after'
import { parseJsonObject } from '@integration-host/shared/json'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { callTraced, tracing } from '@integration-host/shared/observability/telemetry'
import type {
  NotDone,
  QueueOutcome,
  ReplayOutcome,
  TransactionQueue,
} from '../../transaction/transaction-queue.ts'

export interface CoordinatorOptions {
  /** Base URL of the coordinator, without a trailing slash. */
  readonly url: string
  readonly key: Secret
  /** Timeout of a whole call in milliseconds. If the response is not complete after this time, the call is aborted. */
  readonly deadlineMs: number
  readonly logger: Logger
  /**
   * The coordinator's entry in `/health/ready`. Each call to the coordinator sets the entry to up or down, depending on
   * the outcome of the call.
   */
  readonly dependency: Dependency
}

interface CoordinatorResponse {
  readonly status: number
  /** Returns the `code` of a problem document; `null` if the response body is not a problem document. */
  readonly code: string | null
  readonly retryAfterSeconds: number | null
}

const TRANSACTIONS = '/processes/OrderProcess/transactions'
const RETRY_AFTER_SECONDS = 5

/**
 * Returns a client of the coordinator's HTTP API. The client does not retry a failed call, because the user can repeat
 * the request.
 */
export function createTransactionQueue(options: CoordinatorOptions): TransactionQueue {
  const { logger, dependency } = options

  async function post(path: string, body: unknown): Promise<CoordinatorResponse | null> {
    const url = new URL(options.url + path)
    const send = (added: Readonly<Record<string, string>>): Promise<Response> =>
      fetch(url, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${options.key.reveal()}`,
          'Content-Type': 'application/json',
          ...added,
        },
        body: JSON.stringify(body),
        redirect: 'manual',
        signal: AbortSignal.timeout(options.deadlineMs),
      })
    try {
      const response = await (tracing === undefined
        ? send({})
        : callTraced(tracing, { method: 'POST', url }, send, ({ status }) => status))
      const text = await response.text()
      dependency.up()
      const retryAfterMs = parseRetryAfter(response.headers.get('Retry-After'), Date.now())
      return {
        status: response.status,
        code: problemCode(text),
        retryAfterSeconds: retryAfterMs === null ? null : Math.ceil(retryAfterMs / 1_000),
      }
    } catch (error) {
      dependency.down(reasonOfFetch(error))
      return null
    }
  }

  function notDone(response: CoordinatorResponse | null): NotDone {
    if (response === null) return { kind: 'unavailable', retryAfterSeconds: RETRY_AFTER_SECONDS }
    logger.warn(
      { status: response.status, code: response.code },
      'the coordinator did not accept the request to queue or replay a transaction',
    )
    const isTransient = response.status >= 500 || response.status === 408 || response.status === 429
    return isTransient
      ? {
          kind: 'unavailable',
          retryAfterSeconds: response.retryAfterSeconds ?? RETRY_AFTER_SECONDS,
        }
      : { kind: 'rejected' }
  }

  return {
    async queue(number): Promise<QueueOutcome> {
      const response = await post(TRANSACTIONS, { TransactionID: number, InitialData: number })
      if (response?.status === 202 || response?.status === 200) return { kind: 'queued' }
      if (response?.code === 'transaction_conflict') return { kind: 'conflict' }
      return notDone(response)
    },
    async replay(number): Promise<ReplayOutcome> {
      const response = await post(`${TRANSACTIONS}/${encodeURIComponent(number)}/replays`, {})
      if (response?.status === 202) return { kind: 'started' }
      if (response?.code === 'transaction_not_found') return { kind: 'unknown' }
      if (response?.code === 'transaction_active') return { kind: 'active' }
      return notDone(response)
    },
  }
}

/**
 * Returns whether the coordinator responds to `/health/live`, and records the result in `dependency`. `/health/live`
 * does not cover the coordinator's own dependencies: the coordinator reports them in its own `/health/ready`.
 */
export async function probeCoordinator(
  options: Pick<CoordinatorOptions, 'url' | 'dependency' | 'deadlineMs'>,
  closing: AbortSignal,
): Promise<boolean> {
  try {
    const response = await fetch(`${options.url}/health/live`, {
      redirect: 'manual',
      signal: AbortSignal.any([closing, AbortSignal.timeout(options.deadlineMs)]),
    })
    await response.body?.cancel()
    if (response.ok) options.dependency.up()
    else options.dependency.down(`responded with ${response.status}`)
    return response.ok
  } catch (error) {
    if (!closing.aborted) options.dependency.down(reasonOfFetch(error))
    return false
  }
}

// `fetch` rejects with `TypeError: fetch failed`, which does not contain the reason. The reason is the network error in
// `cause`.
const reasonOfFetch = (error: unknown): string =>
  reasonOf(error instanceof TypeError && error.cause !== undefined ? error.cause : error)

function problemCode(text: string): string | null {
  const code = parseJsonObject(text)?.['code']
  return typeof code === 'string' ? code : null
}
