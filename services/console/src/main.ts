import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { type BuiltApp, buildApp } from './build-app.ts'
import { readConfig } from './config.ts'
import { startConsole } from './service.ts'

await runService('console', async () => {
  const config = readConfig()
  const logger = createLogger('console', config.LOG_LEVEL)
  return startConsole(config, { logger, health: createHealth(logger), built: await bundle() })
})

async function bundle(): Promise<BuiltApp> {
  const { build } = await import('esbuild').catch(() => {
    throw new StartupError('esbuild is not installed: install the development dependencies')
  })
  return buildApp(build)
}
