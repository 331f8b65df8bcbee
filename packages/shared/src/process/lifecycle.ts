import { once } from 'node:events'
import { ConfigError } from './config.ts'
import { attributeErrors } from './error-owner.ts'
import { disableNodeProxy } from '../http/forward-proxy/forward-proxy.ts'
import { reasonOf } from '../observability/health.ts'
import {
  createLogger,
  type Logger,
  type LogLevel,
  whenWritten,
  type LogStream,
} from '../observability/logger.ts'
import { useTracing } from '../observability/telemetry.ts'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Resolves with the first SIGTERM or SIGINT. A second signal ends the OS process immediately. */
function terminationSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isStopping = false
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(130)
        isStopping = true
        resolve(signal)
      })
    }
  })
}

/** Resolves when the signal is aborted. */
async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort')
}

/**
 * A running service. Disposing the service first stops accepting work, then finishes the work in flight, and closes the
 * stores last.
 */
export interface RunningService extends AsyncDisposable {
  readonly url: string
}

/** How long a service may take to shut down after a signal before its OS process exits anyway. */
const SHUTDOWN_DEADLINE_MS = 10_000

export interface RunOptions {
  /** The stream to which the process logs; standard output by default. */
  readonly logTo?: LogStream
  /** The log level of the lines that this function writes; `info` by default. */
  readonly logLevel?: LogLevel
  /** Aborting this signal ends the service, in place of SIGTERM and SIGINT. */
  readonly stop?: AbortSignal
  /** The service's name in traces; `name` by default. `OTEL_SERVICE_NAME` takes precedence. */
  readonly tracedAs?: string
}

/**
 * Runs a service process: starts the service, serves until SIGTERM or SIGINT, and shuts down. Invalid settings or a
 * port in use end the process with exit code 1 and one line on standard error. `name` is the service's name in the log.
 */
export async function runService(
  name: string,
  start: () => Promise<RunningService>,
  { logTo, logLevel = 'info', stop, tracedAs = name }: RunOptions = {},
): Promise<void> {
  disablePretenuring()
  disableNodeProxy()
  const logger = createLogger(name, logLevel, logTo)
  exitOnUnhandledError(logger)
  let service: RunningService
  let tracing: AsyncDisposable | null
  try {
    tracing = await startTracing(tracedAs, logger)
    service = await start()
  } catch (error) {
    const message = startupMessageOf(error)
    process.stderr.write(`${name}: ${message ?? `could not start (${reasonOf(error)})`}\n`)
    if (message === null) logger.fatal({ err: error }, 'service could not start')
    // Connections that were opened before the failure would otherwise keep the OS process alive.
    return process.exit(1)
  }
  logger.info({ url: service.url }, 'service is listening')
  setTimeout(collectStartGarbage, 1_000).unref()
  if (stop === undefined) {
    const signal = await terminationSignal()
    logger.info({ signal }, 'service is shutting down')
  } else {
    await aborted(stop)
    logger.info('service is shutting down')
  }
  const deadline = setTimeout(() => {
    logger.error('service did not shut down in time')
    process.exit(1)
  }, SHUTDOWN_DEADLINE_MS)
  await service[Symbol.asyncDispose]()
  await tracing?.[Symbol.asyncDispose]()
  clearTimeout(deadline)
  logger.info('service has shut down')
  // A socket to an unresponsive backend, for example, could keep the event loop alive, so the process exits explicitly.
  process.exit()
}

/** Starts OpenTelemetry if the standard `OTEL_*` variables name a collector; otherwise returns `null`. */
async function startTracing(name: string, logger: Logger): Promise<AsyncDisposable | null> {
  const { env } = process
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT']
  if (!endpoint || env['OTEL_SDK_DISABLED'] === 'true') return null
  const { startOpenTelemetry } = await import('../observability/opentelemetry/tracing.ts').catch(
    withoutOpenTelemetry,
  )
  const tracing = startOpenTelemetry(name, env, logger)
  useTracing(tracing)
  return tracing
}

/**
 * An npm installation of the package `integration-host` does not include OpenTelemetry; the user has to install it too
 * (docs/tracing.md).
 */
function withoutOpenTelemetry(error: unknown): never {
  if ((error as { code?: unknown }).code !== 'ERR_MODULE_NOT_FOUND') throw error
  throw new StartupError(
    'OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed: install the peerDependencies of the package integration-host',
    { cause: error },
  )
}

/**
 * An error of a service that cannot start until a person changes something, for example because a data folder is locked
 * or a file is corrupt. The message is written to the terminal unchanged and without a stack.
 */
export class StartupError extends Error {
  override readonly name = 'StartupError'
}

/**
 * Returns the message for the person who started the service; `null` if the error is a defect, which is logged with its
 * stack.
 */
function startupMessageOf(error: unknown): string | null {
  if (error instanceof ConfigError || error instanceof StartupError) return error.message
  const { code, address, port } = error as { code?: string; address?: string; port?: number }
  if (code === 'EADDRINUSE')
    return `${address}:${port} is taken by another process: stop it, or set another PORT`
  return code === 'EACCES' || code === 'EADDRNOTAVAIL' ? (error as Error).message : null
}

// An unhandled error without an owner is a defect of the service. The error is logged without secrets, and the OS process
// exits.
function exitOnUnhandledError(logger: Logger): void {
  let isExiting = false
  const exit = (error: unknown): void => {
    if (isExiting) return
    isExiting = true
    logger.error('an unexpected error ends the service')
    // The cause is the last line of the output, so the lines before it are written first.
    whenWritten(logger, () => {
      logger.fatal({ err: asError(error) }, 'service is exiting after an unexpected error')
      process.exit(1)
    })
  }
  attributeErrors()
  process.on('uncaughtException', exit)
  process.on('unhandledRejection', exit)
}

/** Returns the error itself, or an Error that describes a thrown value of another type. */
function asError(error: unknown): Error {
  if (error instanceof Error) return error
  return new Error(`not an error: ${typeof error === 'string' ? error : typeof error}`)
}

// The following options of V8 have the gain that was measured (docs/adr/0048, docs/adr/0014). Without them all works alike.

/**
 * Turns off V8's allocation-site pretenuring for this OS process: 8 % more runs per second.
 *
 * V8 allocates objects directly in the old generation if most earlier objects of the same allocation site survived young
 * collections. In a service with many requests in flight these objects survive, but soon become garbage. A young
 * collection cannot see that, and copies everything they refer to until the next full collection.
 */
export function disablePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring')
}

/**
 * Lets the heap grow to four times its live size before V8 collects it completely: a sixth less processor time for a
 * service whose live heap is small (20 MB of the gateway), because V8 would otherwise collect it several times a second.
 */
export function collectRarely(): void {
  setFlagsFromString('--heap-growing-percent=300')
}

/**
 * Runs the garbage collector, which Node exposes only under an option. An idle process would otherwise keep the garbage
 * of stripping types and compiling the sources: 17 of 118 MB of resident memory in demo-api.
 */
function collectStartGarbage(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: object) => void
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
}
