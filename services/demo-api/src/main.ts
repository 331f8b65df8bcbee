import { createHealth } from '@integration-host/shared/observability/health'
import { runService } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readConfig, SERVICE_TITLE } from './config.ts'
import { startDemoApi } from './service.ts'

await runService(
  SERVICE_TITLE,
  async () => {
    const config = readConfig()
    const logger = createLogger(SERVICE_TITLE, config.LOG_LEVEL)
    return startDemoApi(config, { logger, health: createHealth(logger) })
  },
  { tracedAs: 'demo-api' },
)
