import { existsSync } from 'node:fs'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { BUNDLE, type BuiltApp, buildApp, readApp } from './build-app.ts'
import { readConfig } from './config.ts'
import { startConsole } from './service.ts'

await runService('console', async () => {
  const config = readConfig()
  const logger = createLogger('console', config.LOG_LEVEL)
  return startConsole(config, { logger, health: createHealth(logger), built: await bundle() })
})

/** Returns the finished bundle of an image; in a checkout, bundles the sources. */
async function bundle(): Promise<BuiltApp> {
  if (existsSync(BUNDLE)) return readApp(BUNDLE)
  const { build } = await import('esbuild').catch(() => {
    throw new StartupError(
      'there is neither a bundle nor esbuild: run services/console/src/write-app.ts where esbuild is installed',
    )
  })
  return buildApp(build)
}
