import { buffer } from 'node:stream/consumers'
import { startHttpServer } from './http-server.ts'

/** The members of an exported span that tests compare. */
export interface CollectedSpan {
  readonly service: string
  readonly name: string
  readonly traceId: string
  readonly spanId: string
  /** The id of the parent span; empty for the root span of a trace. */
  readonly parentSpanId: string
  readonly isFailed: boolean
  readonly attributes: Readonly<Record<string, string | number | boolean>>
}

export interface TraceCollector extends AsyncDisposable {
  /** The settings with which a service exports its spans to this collector every 50 ms. */
  readonly env: Readonly<Record<string, string>>
  readonly spans: readonly CollectedSpan[]
  /** Returns all request bodies that were received so far. */
  received(): Buffer
}

interface Attribute {
  readonly key: string
  readonly value: Readonly<Record<string, string | number | boolean>>
}

interface Export {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Attribute[] }
    readonly scopeSpans: readonly {
      readonly spans: readonly (Omit<CollectedSpan, 'service' | 'attributes' | 'parentSpanId'> & {
        readonly parentSpanId?: string
        readonly status: { readonly code?: number }
        readonly attributes: readonly Attribute[]
      })[]
    }[]
  }[]
}

/** Starts an in-memory collector for OTLP over HTTP in JSON. */
export async function startTraceCollector(): Promise<TraceCollector> {
  const spans: CollectedSpan[] = []
  const bodies: Buffer[] = []
  const server = await startHttpServer(async (request, response) => {
    const body = await buffer(request)
    bodies.push(body)
    spans.push(...spansOf(JSON.parse(body.toString()) as Export))
    response.setHeader('Content-Type', 'application/json').end('{}')
  })
  return {
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: server.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
      OTEL_BSP_SCHEDULE_DELAY: '50',
    },
    spans,
    received: () => Buffer.concat(bodies),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

const STATUS_ERROR = 2

const spansOf = ({ resourceSpans }: Export): CollectedSpan[] =>
  resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map(({ name, traceId, spanId, parentSpanId = '', status, attributes }) => ({
        service: String(valuesOf(resource.attributes)['service.name']),
        name,
        traceId,
        spanId,
        parentSpanId,
        isFailed: status.code === STATUS_ERROR,
        attributes: valuesOf(attributes),
      })),
    ),
  )

const valuesOf = (attributes: readonly Attribute[]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0] ?? '']))

/**
 * Returns the spans below `parentSpanId`, one per line. Each span is indented below its parent, and siblings are in
 * alphabetical order. Identical siblings are listed once, because their number depends on timing: the gateway
 * requests a token again after each credential event.
 */
export function treeOf(spans: readonly CollectedSpan[], parentSpanId: string): string[] {
  const branches = spans
    .filter((span) => span.parentSpanId === parentSpanId)
    .map(({ service, name, isFailed, spanId }) => {
      const own = `${service}: ${name}${isFailed ? ' (failed)' : ''}`
      return [own, ...treeOf(spans, spanId).map((line) => `  ${line}`)].join('\n')
    })
  return [...new Set(branches)].toSorted().flatMap((branch) => branch.split('\n'))
}
