/** Queues and replays the transactions of the coordinator's business process `OrderProcess`. */
import { hasProblem, ProblemError, statusOf } from '@integration-host/client/problem'
import { createService, type Fetch } from '@integration-host/client/service'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { callTraced, tracing } from '@integration-host/shared/observability/telemetry'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** The result of queuing a transaction. Expected failures of the coordinator are returned as results and not thrown. */
export type QueueOutcome =
  /** The coordinator has stored the transaction, either in this call or in an earlier call. */
  { readonly kind: 'queued' } | { readonly kind: 'conflict' } | NotDone

export type ReplayOutcome =
  | { readonly kind: 'started' }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'active' }
  | NotDone

export type NotDone =
  /** The coordinator did not respond or reported a temporary failure. The same call may succeed later. */
  | { readonly kind: 'unavailable'; readonly retryAfterSeconds: number }
  /**
   * The coordinator rejected the call, for example with 401 because of an unknown service key. A retry cannot succeed.
   */
  | { readonly kind: 'rejected' }

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

const TRANSACTIONS = '/processes/OrderProcess/transactions'
const RETRY_AFTER_SECONDS = 5

export type TransactionQueue = ReturnType<typeof createTransactionQueue>

/**
 * `number` is the transaction id. A queued transaction also gets `number` as its initial data. A failed call is not
 * repeated, because the user can repeat the request.
 */
export function createTransactionQueue(options: CoordinatorOptions) {
  const { url, key, deadlineMs, logger, dependency } = options
  const coordinator = createService({ url, key, timeoutMs: deadlineMs, fetch: fetchTraced })

  /** Returns `null` if the coordinator has accepted the request. */
  async function post(path: string, body: object): Promise<ProblemError | null> {
    try {
      await coordinator.request(path, z.unknown(), { method: 'POST', body })
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error
      if (hasProblem(error, 'connection_failed')) dependency.down(reasonOf(error))
      else dependency.up()
      return error
    }
    dependency.up()
    return null
  }

  function notDone(error: ProblemError): NotDone {
    const { problem, retryAfterSeconds } = error
    const status = statusOf(error)
    const unavailable = {
      kind: 'unavailable',
      retryAfterSeconds: retryAfterSeconds ?? RETRY_AFTER_SECONDS,
    } as const
    if (status === null) return unavailable
    logger.warn(
      { status, code: problem.code },
      'the coordinator did not accept the request to queue or replay a transaction',
    )
    return status >= 500 || status === 408 || status === 429 ? unavailable : { kind: 'rejected' }
  }

  return {
    async queue(number: string): Promise<QueueOutcome> {
      const error = await post(TRANSACTIONS, { TransactionID: number, InitialData: number })
      if (error === null) return { kind: 'queued' }
      return hasProblem(error, 'transaction_conflict') ? { kind: 'conflict' } : notDone(error)
    },
    async replay(number: string): Promise<ReplayOutcome> {
      const error = await post(`${TRANSACTIONS}/${encodeURIComponent(number)}/replays`, {})
      if (error === null) return { kind: 'started' }
      if (hasProblem(error, 'transaction_not_found')) return { kind: 'unknown' }
      return hasProblem(error, 'transaction_active') ? { kind: 'active' } : notDone(error)
    },
  }
}

/** Sends a request in a span, whose context its headers carry. */
const fetchTraced: Fetch = (url, init) =>
  tracing === undefined
    ? fetch(url, init)
    : callTraced(
        tracing,
        { method: init.method ?? 'GET', url: new URL(url) },
        (added) =>
          fetch(url, {
            ...init,
            headers: { ...Object.fromEntries(new Headers(init.headers)), ...added },
          }),
        ({ status }) => status,
      )

/**
 * Returns whether the coordinator responds to `/health/live`, and records the result in `dependency`. `/health/live`
 * does not cover the coordinator's own dependencies: the coordinator reports them in its own `/health/ready`.
 */
export async function probeCoordinator(
  { url, dependency, deadlineMs }: Pick<CoordinatorOptions, 'url' | 'dependency' | 'deadlineMs'>,
  closing: AbortSignal,
): Promise<boolean> {
  try {
    const coordinator = createService({ url, key: null, timeoutMs: deadlineMs })
    const { status } = await coordinator.send('/health/live', { signal: closing })
    if (status === 200) dependency.up()
    else dependency.down(`responded with ${status}`)
    return status === 200
  } catch (error) {
    if (!closing.aborted) dependency.down(reasonOf(error))
    return false
  }
}
