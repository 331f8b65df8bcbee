import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from './config.ts'
import { startSandboxProvider } from './service.ts'

await runService('sandbox-provider', async () => {
  const config = readConfig()
  const logger = createLogger('sandbox-provider', config.LOG_LEVEL)
  return startSandboxProvider(config, { logger, health: createHealth(logger) })
})
