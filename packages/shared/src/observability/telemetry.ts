/**
 * The tracing interface for code that creates spans. This file does not depend on OpenTelemetry, whose SDK is loaded
 * only if a collector is configured (lifecycle.ts).
 *
 * T1  While tracing is off, `tracing` is undefined. Tracing then costs a hot code path one comparison, and no port is
 *     wrapped.
 * T2  The attributes of a span are listed where the span is created, so that no header, body, query or error message
 *     becomes a part of a trace.
 */

export interface Tracing {
  /**
   * Runs `work` in a child span of the active span. If `work` rejects, the span is marked as failed, and the rejection
   * is passed on. A `client` span is created only within an active span. Therefore requests that the service sends on
   * its own, such as probes, are not traced.
   */
  span<Result>(about: SpanDescription, work: () => Promise<Result>): Promise<Result>
  /** Adds attributes to the active span. */
  annotate(attributes: SpanAttributes): void
  /** Renames the active span if its name becomes known only after the span has begun. */
  rename(name: string): void
  /** Marks the active span as failed; `errorType` is a short code, such as a status or `ECONNREFUSED`. */
  fail(errorType: string): void
  /**
   * Returns the headers that continue the active span's trace in another process (`traceparent`). The result is empty
   * if no span is active.
   */
  headers(): Readonly<Record<string, string>>
}

export interface SpanDescription {
  readonly name: string
  readonly kind: 'server' | 'client' | 'producer' | 'consumer' | 'internal'
  readonly attributes?: SpanAttributes
  /**
   * The headers of a request or message from another process. The span continues the trace that `traceparent` names;
   * without this header the span begins a new trace. `tracestate` is ignored, because it would be sent on to the
   * provider.
   */
  readonly from?: Readonly<Record<string, unknown>>
}

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>

/**
 * The tracer of this OS process; undefined while tracing is off. This is module state on purpose. The environment
 * switches tracing on for every service in the OS process, and `useTracing` sets the tracer before any connection is
 * opened. A parameter in each call would cost time even while tracing is off (T1).
 */
export let tracing: Tracing | undefined

/** Switches tracing on. The process calls this function once, before any connection is opened. */
export function useTracing(given: Tracing): void {
  tracing = given
}

export interface Served {
  readonly status: number
  /** The route pattern is used instead of the path, because a path may contain a realm. */
  readonly route: string
}

/**
 * Serves a request in a span. The span continues the trace in `headers`, or begins a new trace if `headers` is empty.
 */
export async function serveTraced(
  traces: Tracing,
  { method, headers }: { readonly method: string; readonly headers: Record<string, unknown> },
  serve: () => Promise<Served>,
): Promise<void> {
  const attributes = { 'http.request.method': method }
  await traces.span({ name: method, kind: 'server', from: headers, attributes }, async () => {
    const { status, route } = await serve()
    traces.rename(`${method} ${route}`)
    traces.annotate({ 'http.route': route, 'http.response.status_code': status })
    if (status >= 500) traces.fail(String(status))
  })
}

/** The result of a call: the status of the response, or a short reason why no response arrived. */
export type CallResult = number | string

/** Calls another service in a span. `send` receives the headers that carry the trace context. */
export function callTraced<Response>(
  traces: Tracing,
  { method, url }: { readonly method: string; readonly url: URL },
  send: (headers: Readonly<Record<string, string>>) => Promise<Response>,
  resultOf: (response: Response) => CallResult,
): Promise<Response> {
  const attributes = {
    'http.request.method': method,
    'server.address': url.hostname,
    'server.port': Number(url.port || (url.protocol === 'https:' ? 443 : 80)),
    'url.full': url.origin + url.pathname, // T2: the query is left out, because it may contain tokens
  }
  return traces.span({ name: method, kind: 'client', attributes }, async () => {
    const response = await send(traces.headers())
    const result = resultOf(response)
    if (typeof result === 'number') traces.annotate({ 'http.response.status_code': result })
    if (typeof result === 'string' || result >= 400) traces.fail(String(result))
    return response
  })
}

/**
 * Returns a copy of `port`, in which each operation that `spans` names runs in a span. While tracing is off, returns
 * `port` itself.
 */
export function tracedPort<Port extends object>(
  port: Port,
  spans: { readonly [Operation in keyof Port]?: SpanDescription },
): Port {
  const traces = tracing
  if (traces === undefined) return port
  const traced = Object.entries(spans).map(([name, about]) => {
    // The keys of `spans` are names of the port's operations. The cast assumes only that these operations return
    // promises.
    const operation = port[name as keyof Port] as (...input: unknown[]) => Promise<unknown>
    const inSpan = (...input: unknown[]): Promise<unknown> =>
      traces.span(about as SpanDescription, () => operation.apply(port, input))
    return [name, inSpan]
  })
  return { ...port, ...Object.fromEntries(traced) } as Port
}

/**
 * Returns a copy of `store` that runs each of `operations` in a child span of the active span. While tracing is off,
 * returns `store` itself.
 */
export function tracedStore<Store extends object>(
  system: 'postgresql' | 'redis',
  store: Store,
  operations: readonly (keyof Store & string)[],
): Store {
  const spans = operations.map((operation) => {
    const attributes = { 'db.system.name': system, 'db.operation.name': operation }
    return [operation, { name: `${system} ${operation}`, kind: 'client', attributes }]
  })
  return tracedPort(store, Object.fromEntries(spans) as Parameters<typeof tracedPort<Store>>[1])
}
