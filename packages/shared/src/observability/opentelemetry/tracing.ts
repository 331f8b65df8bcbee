/** Tracing over OpenTelemetry's SDK: 44 MB of memory, so this module is loaded only where traces go somewhere. */
import { setTimeout as delay } from 'node:timers/promises'
import {
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

/** What the standard variables mean here when they are not set. */
const defaults = (service: string) => ({
  OTEL_SERVICE_NAME: service,
  // No baggage: what a caller puts there would travel to the provider.
  OTEL_PROPAGATORS: 'tracecontext',
  // Not the process with its command line, nor the machine with its user.
  OTEL_NODE_RESOURCE_DETECTORS: 'env,serviceinstance',
})

/** What is still on its way when a service leaves gets so long; a collector that is away must not hold it up. */
const FLUSH_MS = 1_000

/** Starts the SDK as the `OTEL_*` variables say; disposing sends what is still to be sent. */
export function startOpenTelemetry(
  service: string,
  env: NodeJS.ProcessEnv,
  logger: Logger,
): Tracing & AsyncDisposable {
  for (const [name, value] of Object.entries(defaults(service))) env[name] ||= value
  // The SDK tells nobody what goes wrong, unless it is asked to write to the console.
  const tell = (message: string): void =>
    logger.warn({ reason: scrub(messageOf(message)) }, 'traces are not delivered as they should be')
  const quiet = (): void => {}
  diag.setLogger(
    { error: tell, warn: tell, info: quiet, debug: quiet, verbose: quiet },
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
      const parent = from === undefined ? context.active() : propagation.extract(ROOT_CONTEXT, from)
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

/** The SDK writes an error as JSON, with its stack and what the collector answered. */
function messageOf(text: string): string {
  const error = parseJsonObject(text)
  return error === null ? text : String(error['message'])
}

/** Never the message: drivers put passwords and whole bodies there. */
function errorTypeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  const { code } = error as { code?: unknown }
  return typeof code === 'string' ? code : error.name
}
