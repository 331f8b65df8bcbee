import { type Flow, HttpFailure, type HttpRequest, type Receiver } from './exchange.ts'
import { type HeaderList, headerValue } from '@integration-host/shared/http/header-list'

export interface TextResponse {
  readonly status: number
  readonly text: string
  header(name: string): string | null
}

/**
 * The maximum size of a response. The services that are called with `requestText` send only small responses, so a
 * larger response is an error.
 */
const MAX_RESPONSE_BYTES = 1_048_576

/**
 * Sends one request and resolves with its complete response. `timeoutMs` limits the time from the start of the request
 * to the end of the response.
 *
 * @throws {HttpFailure} if there is no complete response, or `signal` aborts.
 */
export function requestText(
  client: { send(request: HttpRequest, receiver: Receiver): void },
  request: HttpRequest,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<TextResponse> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let length = 0
    let status = 0
    let headers: HeaderList = []
    let flow: Flow | null = null
    let isSettled = false
    const settle = (failure: HttpFailure | null): void => {
      if (isSettled) return
      isSettled = true
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      if (failure === null) {
        const text = Buffer.concat(parts).toString('utf8')
        resolve({ status, text, header: (name) => headerValue(headers, name) })
        return
      }
      reject(failure)
      flow?.abort()
    }
    const abort = (): void => settle(new HttpFailure('unreachable'))
    const timer = setTimeout(() => settle(new HttpFailure('timeout')), timeoutMs)
    signal.addEventListener('abort', abort, { once: true })
    if (signal.aborted) return abort()
    client.send(request, {
      onStart(started) {
        flow = started
        if (isSettled) started.abort()
      },
      onInformation() {},
      onHeaders(givenStatus, givenHeaders) {
        status = givenStatus
        headers = givenHeaders
      },
      onData(chunk) {
        length += chunk.length
        if (length > MAX_RESPONSE_BYTES) settle(new HttpFailure('unreachable'))
        else parts.push(chunk)
      },
      onCaughtUp() {},
      onEnd: () => settle(null),
      onFailure: settle,
    })
  })
}
