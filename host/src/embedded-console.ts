import { type BuiltApp, loadApp } from '@integration-host/console/build-app'
import { readConfig } from '@integration-host/console/config'
import { type RunningConsole, startConsole } from '@integration-host/console/service'
import type { Environment } from '@integration-host/shared/process/config'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'

export interface EmbeddedConsoleDeps {
  readonly settings: Environment
  readonly logger: Logger
  readonly health: Health
}

/**
 * Starts the web console. Persons sign in with one-time links unless `SIGN_IN` is set. In a checkout the script of its
 * pages is bundled first; esbuild has no binary for some platforms, on which the result is `null`, and all other
 * services work without the console.
 *
 * @throws {ConfigError} a setting of the console is not valid.
 * @throws the operating system's error if the port is taken.
 */
export async function startEmbeddedConsole({
  settings,
  logger,
  health,
}: EmbeddedConsoleDeps): Promise<RunningConsole | null> {
  const config = readConfig({ ...settings, SIGN_IN: settings['SIGN_IN'] ?? 'link' })
  const built = await bundle(logger)
  return built === null ? null : startConsole(config, { logger, health, built })
}

async function bundle(logger: Logger): Promise<BuiltApp | null> {
  try {
    return await loadApp()
  } catch (error) {
    logger.error(
      { err: error },
      'web console was not started because its browser script could not be bundled',
    )
    return null
  }
}
