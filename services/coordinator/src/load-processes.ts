/** Loads the settings and the processes with which a coordinator starts. */
import { ConfigError, type Environment, parseConfig } from '@integration-host/shared/process/config'
import { BUILT_IN, type LoadedProcesses } from './adapters/folder/processes.ts'
import type { ProcessSource } from './adapters/folder/process-sources.ts'
import { loadWatchableProcesses, type WatchProcesses } from './adapters/folder/watch-processes.ts'
import { type EmbeddedConfig, reference } from './config.ts'

export interface Configured<Config> {
  readonly config: Config
  readonly processes: LoadedProcesses
  /**
   * An option of `startCoordinator` for development. It makes the coordinator load the processes again when a file
   * changes.
   */
  readonly watchProcesses: WatchProcesses
}

/**
 * Reads the settings, and loads the processes that `PROCESSES` names. If a process cannot be loaded, or if its settings
 * are not usable, the result contains a failure for this process.
 *
 * @throws {ConfigError} if a setting of the coordinator is wrong or missing. The message also names the wrong settings
 * of processes.
 * @throws {StartupError} if two processes have the same name.
 */
export async function configure<Config extends EmbeddedConfig>(
  env: Environment,
  readConfig: (env: Environment) => Config,
): Promise<Configured<Config>> {
  const reserved = Object.keys(reference.shape)
  const { loaded, watch } = await loadWatchableProcesses(sourcesOf(env), { env, reserved })
  try {
    return { config: readConfig(env), processes: loaded, watchProcesses: watch }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    throw new ConfigError([
      ...error.problems,
      ...loaded.failures.flatMap(({ settings }) => settings),
    ])
  }
}

/**
 * Returns the sources that `PROCESSES` names. If the setting is not valid, the list is empty; the coordinator does not
 * start in this case.
 */
function sourcesOf(env: Environment): readonly ProcessSource[] {
  try {
    return parseConfig(reference.pick({ PROCESSES: true }), env).PROCESSES ?? BUILT_IN
  } catch (error) {
    if (error instanceof ConfigError) return []
    throw error
  }
}
