import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { ConfigError } from './config.ts'
import { reasonOf } from '../observability/health.ts'
import { createLogger, type Logger } from '../observability/logger.ts'
import { useTracing } from '../observability/telemetry.ts'

/** Resolves with the first SIGTERM or SIGINT. A second one ends the process at once. */
function terminationSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isLeaving = false
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (isLeaving) process.exit(130)
        isLeaving = true
        resolve(signal)
      })
    }
  })
}

/** A service that runs; disposing stops intake first, finishes what is in hand, closes its stores last. */
export interface RunningService extends AsyncDisposable {
  readonly url: string
}

/** How long a process may take to leave after a signal before it is ended anyway. */
const LEAVE_DEADLINE_MS = 10_000

/**
 * The life of a service process: start, serve, leave on a signal. Bad settings and a taken port are one
 * line on standard error and exit code 1; nothing else ends the process by itself.
 */
export async function runService(
  name: string,
  start: () => Promise<RunningService>,
  logTo?: { write(line: string): void },
): Promise<void> {
  const logger = createLogger(name, 'info', logTo)
  refuseUnhandled(logger)
  let service: RunningService
  let tracing: AsyncDisposable | null
  try {
    tracing = await startTracing(name, logger)
    service = await start()
  } catch (error) {
    const told = refusalOf(error)
    process.stderr.write(`${name}: ${told ?? `could not start (${reasonOf(error)})`}\n`)
    if (told === null) logger.fatal({ err: error }, 'could not start')
    // Connections opened before the failure would keep the process alive.
    return process.exit(1)
  }
  logger.info({ url: service.url }, 'service is listening')
  setTimeout(collectStartGarbage, 1_000).unref()
  const signal = await terminationSignal()
  logger.info({ signal }, 'service is leaving')
  const deadline = setTimeout(() => {
    logger.error('service did not leave in time')
    process.exit(1)
  }, LEAVE_DEADLINE_MS)
  await service[Symbol.asyncDispose]()
  await tracing?.[Symbol.asyncDispose]()
  clearTimeout(deadline)
  logger.info('service has left')
  // Whatever still holds the event loop (a socket to a backend that went silent) has no work left.
  process.exit()
}

/** OpenTelemetry, if the environment says where traces go, by its standard variables. */
async function startTracing(name: string, logger: Logger): Promise<AsyncDisposable | null> {
  const { env } = process
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT']
  if (!endpoint || env['OTEL_SDK_DISABLED'] === 'true') return null
  const { startOpenTelemetry } = await import('../observability/opentelemetry/tracing.ts')
  const tracing = startOpenTelemetry(name, env, logger)
  useTracing(tracing)
  return tracing
}

// Stripping and compiling the sources leaves garbage that an idle process would keep: 17 of 118 MB resident,
// measured on demo-api. Node shows its collector only under a flag.
function collectStartGarbage(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: object) => void
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
}

/** Thrown by a start that must not go on, with a message for the person at the terminal (a locked data folder, a corrupt file). */
export class StartupError extends Error {
  override readonly name = 'StartupError'
}

/** What to tell the person who started it; null: a defect, for the log. */
function refusalOf(error: unknown): string | null {
  if (error instanceof ConfigError || error instanceof StartupError) return error.message
  const { code, address, port } = error as { code?: string; address?: string; port?: number }
  if (code === 'EADDRINUSE')
    return `${address}:${port} is taken by another process: stop it, or set another PORT`
  return code === 'EACCES' || code === 'EADDRNOTAVAIL' ? (error as Error).message : null
}

// A bug must be seen: it is logged through the serializer that keeps secrets out, and ends the process.
function refuseUnhandled(logger: Logger): void {
  const leave = (error: unknown): void => {
    logger.fatal({ err: error }, 'unexpected error')
    process.exit(1)
  }
  process.on('uncaughtException', leave)
  process.on('unhandledRejection', leave)
}
