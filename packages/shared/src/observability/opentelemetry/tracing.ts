/** Tracing by OpenTelemetry's SDK, which takes 44 MB of memory: this module is loaded only if a collector is configured. */
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

/** Values of OpenTelemetry's standard variables where the environment sets none. */
const defaults = (service: string) => ({
  OTEL_SERVICE_NAME: service,
  // The propagator `baggage` is left out, because a caller's baggage would be sent to the provider.
  OTEL_PROPAGATORS: 'tracecontext',
  // The detectors `process` and `host` are left out: they would put the command line and the user name into traces.
  OTEL_NODE_RESOURCE_DETECTORS: 'env,serviceinstance',
})

/** How long shutdown waits for pending spans; an unavailable collector must not delay it further. */
const FLUSH_MS = 1_000

/** Starts the SDK, configured by the `OTEL_*` variables; disposing flushes pending spans. */
export function startOpenTelemetry(
  service: string,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Tracing & AsyncDisposable {
  for (const [name, value] of Object.entries(defaults(service))) env[name] ||= value
  // The SDK reports its errors to its diagnostic logger only, which is silent by default.
  const warn = (message: string): void =>
    logger.warn({ reason: scrub(messageOf(message)) }, 'traces are not delivered')
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
 * Returns the context of the trace that headers continue. Without `tracestate` (W3C Trace Context §3.3): vendors put
 * data of their own there, and everything that is read here is sent on to the provider.
 */
const traceOf = ({ traceparent }: Readonly<Record<string, unknown>>): Context =>
  propagation.extract(ROOT_CONTEXT, { traceparent })

/** Returns the message of a diagnostic line, which the SDK writes as JSON with a stack and the collector's response. */
function messageOf(text: string): string {
  const error = parseJsonObject(text)
  return error === null ? text : String(error['message'])
}

/** Returns the code or the class of an error, never its message: drivers put passwords and whole bodies there. */
function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { code } = error as { code?: unknown }
  return typeof code === 'string' ? code : error.name
}
