import { basename } from 'node:path'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { LoadFailure } from './load-failure.ts'
import type { LoadedProcesses } from './processes.ts'

/** The maximum number of failures that `/health/ready` lists. */
const MAX_NAMED = 5

/**
 * Returns a function that reports which processes are loaded, at the start and after each change. It writes to the log,
 * sets a metric, and sets the state of the dependency `processes` in `/health/ready`. This state does not affect
 * readiness. Only the log contains the reasons of failures. `/health/ready` can be read without a service key, so it
 * contains only the file, the line and the kind of each fault.
 */
export function createLoadReport({
  logger,
  health,
  metrics,
  isWatched,
}: {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  /** Whether changed files are loaded while the coordinator runs. */
  readonly isWatched: boolean
}): (loaded: LoadedProcesses) => void {
  const dependency = health.dependency('processes', 'optional')
  const failed = metrics.gauge(
    'coordinator_process_files_failed',
    'Process files, folders and packages of PROCESSES that could not be loaded',
  )
  return ({ definitions, failures }) => {
    const own = [...definitions.values()].filter(({ runBuiltIn }) => runBuiltIn === undefined)
    logger.info({ processes: own.map(({ name }) => name) }, 'processes loaded')
    for (const failure of failures)
      logger.error(
        {
          file: failure.file,
          ...(failure.line !== null && { line: failure.line }),
          reason: failure.reason,
          remedy: remedyOf(failure, isWatched),
        },
        'process is not loaded',
      )
    failed.set(failures.length)
    if (failures.length === 0) return dependency.up()
    const named = failures.slice(0, MAX_NAMED).map(shown)
    const more = failures.length > MAX_NAMED ? [`${failures.length - MAX_NAMED} more`] : []
    dependency.down(`not loaded: ${[...named, ...more].join(', ')}`)
  }
}

/**
 * The remedy includes a restart, because the environment is read only when the coordinator starts, even if changed
 * files are reloaded later.
 */
function remedyOf({ kind, hasLoadedBefore }: LoadFailure, isWatched: boolean): string {
  if (kind === 'settings')
    return 'set these variables in the environment, or in the .env file of the project, then restart; all other processes run'
  if (!isWatched) return 'correct it, then restart; all other processes run'
  return hasLoadedBefore === true
    ? 'correct it; until then the last version that was loaded runs'
    : 'correct it; until then it has no process that runs'
}

const shown = ({ file, line, kind }: LoadFailure): string =>
  `${basename(file)}${line === null ? '' : `:${line}`} (${kind})`
