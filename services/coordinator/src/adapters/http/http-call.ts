import { reasonOf } from '@integration-host/shared/health'
import { callTraced, type CallResult, tracing } from '@integration-host/shared/telemetry'
import type { Agent, Dispatcher } from 'undici'
import {
  type CallLimits,
  type CallOutcome,
  type CallRequest,
  type HttpCall,
  MAX_RESPONSE_BYTES,
} from '../../process/http-call.ts'

export interface HttpCaller extends AsyncDisposable {
  readonly call: HttpCall
}

/** Calls targets over kept connections. Redirects are not followed: the target says what it did, not where. */
export function createHttpCaller(): HttpCaller {
  let opening: Promise<Agent> | null = null
  return {
    async call(request, limits) {
      opening ??= openAgent()
      const agent = await opening
      if (tracing === undefined) return dispatch(agent, request, limits)
      const send = (added: Readonly<Record<string, string>>): Promise<CallOutcome> =>
        dispatch(agent, { ...request, headers: { ...request.headers, ...added } }, limits)
      return callTraced(tracing, request, send, resultOf)
    },
    async [Symbol.asyncDispose]() {
      await (await opening)?.destroy()
    },
  }
}

function resultOf(outcome: CallOutcome): CallResult {
  if (outcome.kind === 'aborted') return 'given up'
  return outcome.kind === 'failed' ? outcome.reason : outcome.status
}

/** With the first call: undici takes 25 MB, which a coordinator without work need not have. */
async function openAgent(): Promise<Agent> {
  const undici = await import('undici')
  return new undici.Agent({
    connect: { timeout: 10_000 },
    connections: 128,
    keepAliveTimeout: 10_000,
    // The limits of a call are the step's.
    headersTimeout: 0,
    bodyTimeout: 0,
  })
}

/** At undici's own level: `onRequestStart` tells the moment the request leaves, which `request()` does not. */
function dispatch(agent: Agent, request: CallRequest, limits: CallLimits): Promise<CallOutcome> {
  const { signal, untilSent, timeoutMs } = limits
  if (signal.aborted || untilSent.aborted)
    return Promise.resolve({ kind: 'aborted', isSent: false })
  return new Promise((resolve) => {
    let controller: Dispatcher.DispatchController | null = null
    let isSettled = false
    let isSent = false
    let status = 0
    let retryAfter: string | null = null
    let contentType: string | null = null
    const chunks: Buffer[] = []
    let length = 0

    const settle = (outcome: CallOutcome): void => {
      if (isSettled) return
      isSettled = true
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      untilSent.removeEventListener('abort', abort)
      resolve(outcome)
    }
    const stop = (outcome: CallOutcome): void => {
      settle(outcome)
      controller?.abort(new Error('given up'))
    }
    const abort = (): void => stop({ kind: 'aborted', isSent })
    const timer = setTimeout(() => stop({ kind: 'failed', reason: 'ETIMEDOUT', isSent }), timeoutMs)
    signal.addEventListener('abort', abort, { once: true })
    untilSent.addEventListener('abort', abort, { once: true })

    agent.dispatch(
      {
        origin: request.url.origin,
        path: request.url.pathname + request.url.search,
        method: request.method,
        headers: request.headers,
        body: request.body,
      },
      {
        onRequestStart(started) {
          controller = started
          // Given up while it waited for a connection: it must not leave now.
          if (isSettled) return started.abort(new Error('given up'))
          isSent = true
          untilSent.removeEventListener('abort', abort)
        },
        onResponseStart(_, statusCode, headers) {
          status = statusCode
          retryAfter = firstOf(headers['retry-after'])
          contentType = firstOf(headers['content-type'])
        },
        onResponseData(_, chunk) {
          length += chunk.length
          if (length > MAX_RESPONSE_BYTES) return stop({ kind: 'too_large', status, retryAfter })
          chunks.push(chunk)
        },
        onResponseEnd() {
          const body = textOf(Buffer.concat(chunks), contentType)
          settle({ kind: 'answered', status, body, retryAfter })
        },
        onResponseError(_, error) {
          settle({ kind: 'failed', reason: reasonOf(error), isSent })
        },
      },
    )
  })
}

const firstOf = (value: string | string[] | undefined): string | null =>
  (Array.isArray(value) ? value[0] : value) ?? null

const utf8 = new TextDecoder()

/** The text of a body in the charset its type names; what is no text in it becomes U+FFFD. */
function textOf(body: Buffer, contentType: string | null): string {
  const charset = /;\s*charset="?([^\s;"]+)/i.exec(contentType ?? '')?.[1]?.toLowerCase() ?? 'utf-8'
  if (charset === 'utf-8') return utf8.decode(body)
  try {
    return new TextDecoder(charset).decode(body)
  } catch {
    return body.toString('utf8') // a charset nobody knows
  }
}
