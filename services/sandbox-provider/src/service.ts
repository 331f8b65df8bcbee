import { randomUUID } from 'node:crypto'
import type { Health } from '@integration-host/shared/observability/health'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import type { RunningService } from '@integration-host/shared/process/lifecycle'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createMetrics, type Metrics } from '@integration-host/shared/observability/metrics'
import { volatileMemory, openMemoryFile } from './adapters/file/memory-file.ts'
import { createIdentitySigner } from './adapters/jose/identity-signer.ts'
import { createApp } from './app.ts'
import type { Config } from './config.ts'
import type { Addresses } from './provider.ts'
import { createWebhookSender } from './webhooks/webhook-sender.ts'

export interface ServiceDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics?: Metrics
  /** Returns the time in epoch milliseconds. Tests set it. */
  readonly now?: () => number
  /** The clock that decides when webhooks are sent. Tests set it. */
  readonly clock?: Clock
}

/**
 * Starts the sandbox provider with a new signing key. If `STATE_FILE` is not set, grants and companies are lost when
 * the sandbox provider exits.
 */
export async function startSandboxProvider(
  config: Config,
  deps: ServiceDeps,
): Promise<RunningService> {
  const { logger, health, metrics = createMetrics('sandbox-provider'), now = Date.now } = deps
  let listensAt = ''
  const addresses = (): Addresses => {
    const base = config.BASE_URL ?? listensAt
    return { base, browser: config.BROWSER_URL ?? base }
  }
  const file =
    config.STATE_FILE === undefined ? volatileMemory() : openMemoryFile(config.STATE_FILE)
  const { WEBHOOK_URL: url, WEBHOOK_VERIFIER_TOKENS: [token] = [] } = config
  const webhooks =
    url === undefined || token === undefined
      ? undefined
      : createWebhookSender({
          url,
          token,
          clock: deps.clock ?? systemClock,
          fetch,
          random: Math.random,
          newId: randomUUID,
        })
  const app = createApp({
    memory: file.memory,
    changed: () => file.changed(),
    logger,
    health,
    metrics,
    client: { id: config.CLIENT_ID, secret: config.CLIENT_SECRET },
    redirectUris: config.REDIRECT ?? null,
    disconnectUrl: config.DISCONNECT_URL ?? null,
    personality: config.PERSONALITY,
    signer: await createIdentitySigner(),
    addresses,
    now,
    ...(webhooks !== undefined && { webhooks }),
  })
  const server = await listen(honoListener(app), { host: config.HOST, port: config.PORT, metrics })
  listensAt = server.url
  return {
    url: server.url,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]()
      await webhooks?.[Symbol.asyncDispose]()
      await file[Symbol.asyncDispose]()
    },
  }
}
