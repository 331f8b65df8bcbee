import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig } from './config.ts'
import { startDemoApi } from './service.ts'

await runService('demo-api', async () => {
  const config = readConfig()
  const logger = createLogger('demo-api', config.LOG_LEVEL)
  return startDemoApi(config, { logger, health: createHealth(logger) })
})
