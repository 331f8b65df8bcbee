import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
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
  /** Base address, without a trailing slash. */
  readonly url: string
  readonly key: Secret
  /** Milliseconds until an answer must be there, body included. */
  readonly deadlineMs: number
  readonly logger: Logger
  /** Told what each call shows of the coordinator. */
  readonly dependency: Dependency
}

interface Answer {
  readonly status: number
  /** The `code` of a problem document, else null. */
  readonly code: string | null
  readonly retryAfterSeconds: number | null
}

const TRANSACTIONS = '/processes/OrderProcess/transactions'
const RETRY_AFTER_SECONDS = 5

/** Calls the coordinator over HTTP; no retries, because a person at the other end can press again. */
export function createTransactionQueue(options: CoordinatorOptions): TransactionQueue {
  const { logger, dependency } = options

  async function post(path: string, body: unknown): Promise<Answer | null> {
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
      return { status: response.status, code: problemCode(text), ...retryAfter(response) }
    } catch (error) {
      dependency.down(reasonOfFetch(error))
      return null
    }
  }

  function notDone(answer: Answer | null): NotDone {
    if (answer === null) return { kind: 'unavailable', retryAfterSeconds: RETRY_AFTER_SECONDS }
    logger.warn({ status: answer.status, code: answer.code }, 'coordinator did not take the call')
    const isPassing = answer.status >= 500 || answer.status === 408 || answer.status === 429
    return isPassing
      ? {
          kind: 'unavailable',
          retryAfterSeconds: answer.retryAfterSeconds ?? RETRY_AFTER_SECONDS,
        }
      : { kind: 'refused' }
  }

  return {
    async queue(number): Promise<QueueOutcome> {
      const answer = await post(TRANSACTIONS, { TransactionID: number, InitialData: number })
      if (answer?.status === 202 || answer?.status === 200) return { kind: 'queued' }
      if (answer?.code === 'transaction_conflict') return { kind: 'conflict' }
      return notDone(answer)
    },
    async replay(number): Promise<ReplayOutcome> {
      const answer = await post(`${TRANSACTIONS}/${encodeURIComponent(number)}/replays`, {})
      if (answer?.status === 202) return { kind: 'started' }
      if (answer?.code === 'transaction_not_found') return { kind: 'unknown' }
      if (answer?.code === 'transaction_active') return { kind: 'active' }
      return notDone(answer)
    },
  }
}

/** Whether the coordinator's process answers; it may still wait for its own backends. */
export async function probeCoordinator(
  options: Pick<CoordinatorOptions, 'url' | 'dependency' | 'deadlineMs'>,
  leaving: AbortSignal,
): Promise<boolean> {
  try {
    const response = await fetch(`${options.url}/health/live`, {
      redirect: 'manual',
      signal: AbortSignal.any([leaving, AbortSignal.timeout(options.deadlineMs)]),
    })
    await response.body?.cancel()
    if (response.ok) options.dependency.up()
    else options.dependency.down(`answered ${response.status}`)
    return response.ok
  } catch (error) {
    if (!leaving.aborted) options.dependency.down(reasonOfFetch(error))
    return false
  }
}

// fetch says "fetch failed"; what failed is its cause.
const reasonOfFetch = (error: unknown): string =>
  reasonOf(error instanceof TypeError && error.cause !== undefined ? error.cause : error)

function problemCode(text: string): string | null {
  const code = parseJsonObject(text)?.['code']
  return typeof code === 'string' ? code : null
}

function retryAfter(response: Response): Pick<Answer, 'retryAfterSeconds'> {
  const value = response.headers.get('Retry-After') ?? ''
  return { retryAfterSeconds: /^\d{1,6}$/.test(value) ? Number(value) : null }
}
