import type { Dispatcher } from 'undici'
import Pool from 'undici/lib/dispatcher/pool.js'
import {
  callTraced,
  type CallResult,
  type Tracing,
  tracing,
} from '@integration-host/shared/telemetry'
import { type HeaderList, headerPairs } from '../../proxy/headers.ts'
import {
  type Flow,
  type Receiver,
  type Upstream,
  UpstreamFailure,
  type UpstreamRequest,
} from '../../proxy/upstream.ts'

export interface UpstreamOptions {
  readonly connectTimeoutMs?: number
  /** The longest silence within an answer. */
  readonly idleTimeoutMs?: number
}

export interface UpstreamConnection extends AsyncDisposable {
  readonly upstream: Upstream
}

/** Connections to one origin, kept open between calls. Redirects are not followed, nothing is decoded. */
export function connectUpstream(origin: string, options: UpstreamOptions = {}): UpstreamConnection {
  const pool = new Pool(origin, {
    pipelining: 1,
    // HTTP/2 multiplexes companies over one connection: one reset would break many calls.
    allowH2: false,
    connect: { timeout: options.connectTimeoutMs ?? 5_000 },
    // The call's own deadline covers the wait for the head.
    headersTimeout: 0,
    bodyTimeout: options.idleTimeoutMs ?? 60_000,
    keepAliveTimeout: 10_000,
    maxHeaderSize: 65_536,
  })
  const upstream: Upstream = {
    send: (request, receiver) => {
      pool.dispatch(dispatchOptions(request), new Handler(receiver))
    },
  }
  return {
    upstream: tracing === undefined ? upstream : tracedUpstream(tracing, upstream, origin),
    async [Symbol.asyncDispose]() {
      await pool.destroy()
    },
  }
}

// The client's types know Node's streams and its own iterables; it takes any of the latter.
const dispatchOptions = ({ method, path, headers, body }: UpstreamRequest) =>
  ({ method, path, headers, body }) as unknown as Dispatcher.DispatchOptions

class Handler implements Dispatcher.DispatchHandler, Flow {
  readonly #receiver: Receiver
  #controller: Dispatcher.DispatchController | null = null

  constructor(receiver: Receiver) {
    this.#receiver = receiver
  }

  pause(): void {
    this.#controller?.pause()
  }

  resume(): void {
    this.#controller?.resume()
  }

  abort(): void {
    this.#controller?.abort(new UpstreamFailure('unreachable'))
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    this.#receiver.onStart(this)
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number): void {
    const headers = latin1(controller.rawHeaders)
    if (status >= 200) this.#receiver.onHeaders(status, headers)
    else this.#receiver.onInformation(status, headers)
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#receiver.onData(chunk)
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    this.#receiver.onEnd(latin1(controller.rawTrailers))
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#receiver.onFailure(failureOf(error))
  }
}

// Over HTTP/1.1 the raw headers are buffers, name and value in turn. Latin-1 keeps every byte.
function latin1(raw: Dispatcher.DispatchController['rawHeaders']): HeaderList {
  if (!Array.isArray(raw)) return []
  return raw.map((part) => (typeof part === 'string' ? part : part.toString('latin1')))
}

const TIMEOUTS = new Set([
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'ETIMEDOUT',
])
const UNSENDABLE = new Set([
  'UND_ERR_INVALID_ARG',
  'UND_ERR_NOT_SUPPORTED',
  'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH',
])

function failureOf(cause: Error): UpstreamFailure {
  if (cause instanceof UpstreamFailure) return cause
  const code = 'code' in cause ? String(cause.code) : ''
  const kind = TIMEOUTS.has(code) ? 'timeout' : UNSENDABLE.has(code) ? 'unsendable' : 'unreachable'
  return new UpstreamFailure(kind, { cause })
}

/** The same upstream, each request in a span. The trace goes on there from ours, in place of the caller's. */
const tracedUpstream = (traces: Tracing, upstream: Upstream, origin: string): Upstream => ({
  send(request, receiver) {
    const { method, path, headers } = request
    const send = (added: Readonly<Record<string, string>>): Promise<CallResult> =>
      new Promise((resolve) => {
        let result: CallResult = 0
        const kept = headerPairs(headers).filter(([name]) => !(name.toLowerCase() in added))
        const sent = { ...request, headers: [...kept, ...Object.entries(added)].flat() }
        upstream.send(sent, {
          onStart: (flow) => receiver.onStart(flow),
          onInformation: (status, given) => receiver.onInformation(status, given),
          onHeaders(status, given) {
            result = status
            receiver.onHeaders(status, given)
          },
          onData: (chunk) => receiver.onData(chunk),
          onEnd(trailers) {
            receiver.onEnd(trailers)
            resolve(result)
          },
          onFailure(failure) {
            receiver.onFailure(failure)
            resolve(failure.kind)
          },
        })
      })
    void callTraced(traces, { method, url: new URL(path, origin) }, send, (result) => result)
  },
})
