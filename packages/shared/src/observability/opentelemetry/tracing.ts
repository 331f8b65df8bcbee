/**
 * Traces with OpenTelemetry's SDK. The SDK takes 44 MB of memory, so this module is loaded only if a collector is
 * configured.
 */
import { setTimeout as delay } from 'node:timers/promises'
import {
  type Context,
  context,
  diag,
  DiagLogLevel,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import { NodeSDK } from '@opentelemetry/sdk-node'
import { parseJsonObject } from '../../json.ts'
import { type Logger, scrub } from '../logger.ts'
import type { SpanDescription, Tracing } from '../telemetry.ts'

const kinds = {
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
} as const satisfies Record<SpanDescription['kind'], SpanKind>

/** The defaults for standard variables of OpenTelemetry that the environment does not set. */
const defaults = (service: string) => ({
  OTEL_SERVICE_NAME: service,
  // Without this setting, a caller's baggage would be sent to the provider (propagator `baggage`).
  OTEL_PROPAGATORS: 'tracecontext',
  // Without this setting, traces would contain the command line and the user name (detectors `process` and `host`).
  OTEL_NODE_RESOURCE_DETECTORS: 'env,serviceinstance',
})

/**
 * How long a shutdown waits for pending spans to be delivered. A collector that is unavailable must not delay the
 * shutdown longer.
 */
const FLUSH_MS = 1_000

/** Starts the SDK, which reads the `OTEL_*` variables. Disposing the result flushes pending spans. */
export function startOpenTelemetry(
  service: string,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Tracing & AsyncDisposable {
  for (const [name, value] of Object.entries(defaults(service))) env[name] ||= value
  // The SDK reports its errors only to its diagnostic logger, which writes nothing by default.
  const warn = (message: string): void =>
    logger.warn({ reason: scrub(messageOf(message)) }, 'traces are not delivered to the collector')
  const quiet = (): void => {}
  diag.setLogger(
    { error: warn, warn, info: quiet, debug: quiet, verbose: quiet },
    DiagLogLevel.WARN,
  )
  const sdk = new NodeSDK({ metricReaders: [], logRecordProcessors: [] })
  sdk.start()
  const tracer = trace.getTracer('integration-host')
  const fail = (errorType: string): void =>
    void trace
      .getActiveSpan()
      ?.setStatus({ code: SpanStatusCode.ERROR })
      .setAttribute('error.type', errorType)

  return {
    span({ name, kind, attributes = {}, from }, work) {
      if (kind === 'client' && trace.getActiveSpan() === undefined) return work()
      const parent = from === undefined ? context.active() : traceOf(from)
      const options = { kind: kinds[kind], attributes }
      return tracer.startActiveSpan(name, options, parent, async (span) => {
        try {
          return await work()
        } catch (error) {
          fail(errorTypeOf(error))
          throw error
        } finally {
          span.end()
        }
      })
    },
    annotate: (attributes) => void trace.getActiveSpan()?.setAttributes(attributes),
    rename: (name) => void trace.getActiveSpan()?.updateName(name),
    fail,
    headers() {
      const carrier: Record<string, string> = {}
      propagation.inject(context.active(), carrier)
      return carrier
    },
    async [Symbol.asyncDispose]() {
      await Promise.race([sdk.shutdown().catch(quiet), delay(FLUSH_MS, null, { ref: false })])
    },
  }
}

/**
 * Returns the trace context from the headers of a request. The header `tracestate` (W3C Trace Context §3.3) is ignored,
 * because the service would send the vendor data of this header on to the provider.
 */
const traceOf = ({ traceparent }: Readonly<Record<string, unknown>>): Context =>
  propagation.extract(ROOT_CONTEXT, { traceparent })

/**
 * Returns the message of a diagnostic line. The SDK writes such a line as JSON, together with a stack and the
 * collector's response.
 */
function messageOf(text: string): string {
  const error = parseJsonObject(text)
  return error === null ? text : String(error['message'])
}

/**
 * Returns the code or the class of an error, never the message, because drivers put passwords and whole bodies into
 * messages.
 */
function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { code } = error as { code?: unknown }
  return typeof code === 'string' ? code : error.name
}
