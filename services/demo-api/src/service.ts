import { setTimeout as delay } from 'node:timers/promises'
import type { Health } from '@integration-host/shared/observability/health'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import {
  createTransactionQueue,
  probeCoordinator,
} from './adapters/coordinator/transaction-queue.ts'
import { createApp } from './app.ts'
import type { Config } from './config.ts'

export interface ServiceDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics?: Metrics
}

const CALL_DEADLINE_MS = 10_000
const PROBE = { deadlineMs: 2_000, upMs: 5_000, downMs: 500 } as const

/** Starts the demo API. The API listens immediately, even if the coordinator is unavailable. */
export async function startDemoApi(config: Config, deps: ServiceDeps): Promise<RunningService> {
  const { logger, health, metrics = createMetrics('demo-api') } = deps
  const coordinator = { url: config.COORDINATOR_URL, dependency: health.dependency('coordinator') }
  const app = createApp({
    logger,
    health,
    metrics,
    transactions: createTransactionQueue({
      ...coordinator,
      key: config.SERVICE_API_KEY[0],
      deadlineMs: CALL_DEADLINE_MS,
      logger,
    }),
    allowedHosts: config.ALLOWED_HOSTS,
    now: Date.now,
  })
  const server = await listen(honoListener(app), {
    host: config.HOST,
    port: config.PORT,
    metrics,
  })
  const closing = new AbortController()
  const probe = { ...coordinator, deadlineMs: PROBE.deadlineMs }
  const watching = watch(() => probeCoordinator(probe, closing.signal), closing.signal)
  return {
    url: server.url,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]()
      closing.abort()
      await watching
    },
  }
}

/** Calls `probe` every 5 s, or every 0.5 s while the coordinator is unavailable, until `signal` is aborted. */
async function watch(probe: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const isUp = await probe()
    const waitMs = isUp ? PROBE.upMs : PROBE.downMs
    await delay(waitMs, undefined, { signal }).catch(() => {})
  }
}
