import { logLevels, parseConfig } from '@integration-host/shared/process/config'
import type { LogStream, LogLevel } from '@integration-host/shared/observability/logger'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { z } from 'zod'
import { type Host, type HostOptions, startHost } from './host.ts'

export interface HostRun extends Pick<
  HostOptions,
  'ports' | 'provider' | 'watchesProcesses' | 'withConsole'
> {
  /** The command that the user entered, for error messages that suggest an option. */
  readonly command: string
  readonly logTo: LogStream
  readonly logLevel: LogLevel
  /** Aborting this signal stops the host. If the signal is absent, SIGTERM and SIGINT stop the host. */
  readonly stop?: AbortSignal
  /** Called when all services listen. */
  readonly onStarted: (host: Host) => Promise<void> | void
}

/**
 * Runs the embedded host with the settings of the environment until the host is stopped, and then ends the OS process.
 * The environment variables `DATA_DIR` and `LOG_LEVEL` take precedence over the defaults.
 */
export const runHost = ({ command, onStarted, stop, ...options }: HostRun): Promise<void> =>
  runService(
    'integration-host',
    async () => {
      const settings = z.object({
        DATA_DIR: z.string().default('./data'),
        LOG_LEVEL: z.enum(logLevels).default(options.logLevel),
      })
      const { DATA_DIR: dataDir, LOG_LEVEL: logLevel } = parseConfig(settings, process.env)
      const host = await startHost({ ...options, dataDir, logLevel, env: process.env }).catch(
        (error: unknown) => {
          const { code, port } = error as { code?: string; port?: number }
          if (code !== 'EADDRINUSE') throw error
          throw new StartupError(
            `port ${port} is taken by another process: stop it, or use ${command} --free-ports`,
          )
        },
      )
      await onStarted(host)
      return { url: host.demoApi, [Symbol.asyncDispose]: () => host[Symbol.asyncDispose]() }
    },
    {
      logTo: options.logTo,
      logLevel: options.logLevel,
      ...(stop !== undefined && { stop }),
    },
  )
