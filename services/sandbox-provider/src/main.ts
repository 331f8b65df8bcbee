import { createHealth } from '@integration-host/shared/health'
import { runService } from '@integration-host/shared/lifecycle'
import { createLogger } from '@integration-host/shared/logger'
import { readConfig } from './config.ts'
import { startSandboxProvider } from './service.ts'

await runService('sandbox-provider', async () => {
  const config = readConfig()
  const logger = createLogger('sandbox-provider', config.LOG_LEVEL)
  return startSandboxProvider(config, { logger, health: createHealth(logger) })
})
