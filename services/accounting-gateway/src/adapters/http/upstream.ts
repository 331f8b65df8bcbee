import { headerPairs } from '@integration-host/shared/http/header-list'
import { Pool, type PoolOptions } from '@integration-host/fast-http/pool'
import {
  callTraced,
  type CallResult,
  type Tracing,
  tracing,
} from '@integration-host/shared/observability/telemetry'
import type { Upstream } from '../../proxy/call-types.ts'

export interface UpstreamConnection extends AsyncDisposable {
  readonly upstream: Upstream
}

/** Opens a connection pool to one origin. If tracing is on, each call is recorded as a span. */
export function connectUpstream(origin: string, options: PoolOptions = {}): UpstreamConnection {
  const pool = new Pool(origin, options)
  return {
    upstream: tracing === undefined ? pool : tracedUpstream(tracing, pool, origin),
    [Symbol.asyncDispose]: () => pool[Symbol.asyncDispose](),
  }
}

/** Records each request as a span, and replaces the caller's trace headers by the trace headers of this span. */
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
          onCaughtUp: () => receiver.onCaughtUp(),
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
