import { type Flow, HttpFailure, type HttpRequest, type Receiver } from './exchange.ts'
import { type HeaderList, headerValue } from './header-list.ts'

export interface Answer {
  readonly status: number
  readonly text: string
  header(name: string): string | null
}

/** Answers of our neighbours are small; a larger one is none of theirs. */
const LONGEST_ANSWER = 1_048_576

/**
 * Sends one request and reads its answer whole, within `timeoutMs` for all of it.
 *
 * @throws {HttpFailure} when there is no answer, or `signal` aborts.
 */
export function ask(
  client: { send(request: HttpRequest, receiver: Receiver): void },
  request: HttpRequest,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = []
    let length = 0
    let status = 0
    let headers: HeaderList = []
    let flow: Flow | null = null
    let isOver = false
    const end = (failure: HttpFailure | null): void => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      signal.removeEventListener('abort', leave)
      if (failure === null) {
        const text = Buffer.concat(parts).toString('utf8')
        resolve({ status, text, header: (name) => headerValue(headers, name) })
        return
      }
      reject(failure)
      flow?.abort()
    }
    const leave = (): void => end(new HttpFailure('unreachable'))
    const timer = setTimeout(() => end(new HttpFailure('timeout')), timeoutMs)
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) return leave()
    client.send(request, {
      onStart(started) {
        flow = started
        if (isOver) started.abort()
      },
      onInformation() {},
      onHeaders(gotStatus, gotHeaders) {
        status = gotStatus
        headers = gotHeaders
      },
      onData(chunk) {
        length += chunk.length
        if (length > LONGEST_ANSWER) end(new HttpFailure('unreachable'))
        else parts.push(chunk)
      },
      onCaughtUp() {},
      onEnd: () => end(null),
      onFailure: end,
    })
  })
}
