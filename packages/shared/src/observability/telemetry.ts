/**
 * Tracing, as traced code sees it. Nothing of OpenTelemetry is known here, and none of it is loaded unless traces
 * have somewhere to go (lifecycle.ts).
 *
 * T1  Off, `tracing` is undefined: a path that every call takes pays one look at it and no more; a port is wrapped
 *     when it is opened, or not at all.
 * T2  What a span holds is named where it is made: no header, body, query or message of an error comes into it.
 */

export interface Tracing {
  /**
   * Runs `work` in a span below the active one. A rejection fails the span and is passed on. Only a `client` span
   * needs an active one: what a service asks for by itself, all day long, is nobody's trace.
   */
  span<Result>(about: SpanDescription, work: () => Promise<Result>): Promise<Result>
  /** Adds to the active span. */
  annotate(attributes: SpanAttributes): void
  /** Gives the active span its name, where that is known only later. */
  rename(name: string): void
  /** Marks the active span as failed; a short code, such as a status or `ECONNREFUSED`. */
  fail(errorType: string): void
  /** What a request or message has to carry for the active span's trace to go on (`traceparent`); none without one. */
  headers(): Readonly<Record<string, string>>
}

export interface SpanDescription {
  readonly name: string
  readonly kind: 'server' | 'client' | 'producer' | 'consumer' | 'internal'
  readonly attributes?: SpanAttributes
  /** The headers of what came in from another process: the span belongs below its sender's, or begins a trace. */
  readonly from?: Readonly<Record<string, unknown>>
}

export type SpanAttributes = Readonly<Record<string, string | number | boolean>>

/** Of this process, as its environment is: every service in it is traced, or none. */
export let tracing: Tracing | undefined

/** Called once, before anything is opened. */
export function useTracing(given: Tracing): void {
  tracing = given
}

export interface Served {
  readonly status: number
  /** The pattern, not the path: a path may hold a realm. */
  readonly route: string
}

/** Serves a request in a span that goes on with the caller's trace. */
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

/** What a call came to: the status of its answer, or a short reason why there is none. */
export type CallResult = number | string

/** Makes a call to another service in a span; `send` gets the headers that tell it of the trace. */
export function callTraced<Answer>(
  traces: Tracing,
  { method, url }: { readonly method: string; readonly url: URL },
  send: (headers: Readonly<Record<string, string>>) => Promise<Answer>,
  resultOf: (answer: Answer) => CallResult,
): Promise<Answer> {
  const attributes = {
    'http.request.method': method,
    'server.address': url.hostname,
    'server.port': Number(url.port || (url.protocol === 'https:' ? 443 : 80)),
    'url.full': url.origin + url.pathname, // T2: tokens travel in queries
  }
  return traces.span({ name: method, kind: 'client', attributes }, async () => {
    const answer = await send(traces.headers())
    const result = resultOf(answer)
    if (typeof result === 'number') traces.annotate({ 'http.response.status_code': result })
    if (typeof result === 'string' || result >= 400) traces.fail(String(result))
    return answer
  })
}

/** The same port, with a span for each of these operations; the port itself while nothing is traced. */
export function tracedPort<Port extends object>(
  port: Port,
  spans: { readonly [Operation in keyof Port]?: SpanDescription },
): Port {
  const traces = tracing
  if (traces === undefined) return port
  const traced = Object.entries(spans).map(([name, about]) => {
    // The keys of `spans` are operations of the port, and all that is asked of one here is that it can be awaited.
    const operation = port[name as keyof Port] as (...input: unknown[]) => Promise<unknown>
    const inSpan = (...input: unknown[]): Promise<unknown> =>
      traces.span(about as SpanDescription, () => operation.apply(port, input))
    return [name, inSpan]
  })
  return { ...port, ...Object.fromEntries(traced) } as Port
}

/** The same store, with a span for each of these operations that happens in a trace. */
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
