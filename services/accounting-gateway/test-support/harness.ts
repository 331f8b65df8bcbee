/**
 * Starts the gateway inside the test process, as the embedded host does (all services in one process). Fakes replace
 * the services that the gateway calls.
 */
import {
  credentialMessageId,
  type CredentialEventKind,
  credentialRoutingKey,
  CREDENTIALS_EXCHANGE,
} from '@integration-host/shared/contracts/credential'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { readEmbeddedConfig } from '../src/config.ts'
import type { GatewayLimits } from '../src/realm/throttle.ts'
import { startAccountingGateway } from '../src/service.ts'
import type { UsageStore } from '../src/usage/usage.ts'
import {
  echo,
  type FakeServer,
  type FakeTokenService,
  KEY,
  type RequestHandler,
  startFakeServer,
  startFakeTokenService,
} from './fake-servers.ts'

export interface Gateway extends AsyncDisposable {
  readonly url: string
  readonly port: number
  readonly bus: MessageBus
  readonly log: Record<string, unknown>[]
  /** Returns the text of all log entries. */
  logText(): string
  call(path: string, init?: RequestInit): Promise<Response>
}

export interface GatewayOptions {
  readonly settings?: Readonly<Record<string, string>>
  readonly limits?: GatewayLimits
  readonly bus?: MessageBus
  readonly usage?: UsageStore
}

/** Starts a gateway as the embedded host does. The limits are high unless `settings` contains other limits. */
export async function startGateway(
  upstreamUrl: string,
  tokenServiceUrl: string,
  { settings = {}, limits, usage, bus: givenBus }: GatewayOptions = {},
): Promise<Gateway> {
  const lines: string[] = []
  const logger = createLogger('gateway', 'trace', { write: (line) => void lines.push(line) })
  const bus = givenBus ?? createInProcessBus(logger)
  const config = readEmbeddedConfig({
    PORT: '0',
    SERVICE_API_KEY: KEY,
    ACCOUNTING_URL: upstreamUrl,
    TOKEN_SERVICE_URL: tokenServiceUrl,
    REQUESTS_PER_SECOND: '1000',
    REQUESTS_PER_MINUTE: '10000',
    CONCURRENT_REQUESTS: '1000',
    BATCHES_PER_MINUTE: '1000',
    // The vitest project `gateway without fast path` sets FAST_PATH to `off`, so that the same tests also run without
    // the fast path.
    FAST_PATH: process.env['FAST_PATH'] ?? 'on',
    ...settings,
  })
  const service = await startAccountingGateway(config, {
    logger,
    health: createHealth(logger),
    bus,
    ...(limits !== undefined && { limits }),
    ...(usage !== undefined && { usage }),
  })
  return {
    url: service.url,
    port: Number(new URL(service.url).port),
    bus,
    get log() {
      return lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    },
    logText: () => lines.join(''),
    call: (path, init = {}) =>
      fetch(service.url + path, {
        redirect: 'manual',
        ...init,
        headers: { Authorization: `Bearer ${KEY}`, ...(init.headers as Record<string, string>) },
      }),
    async [Symbol.asyncDispose]() {
      await service[Symbol.asyncDispose]()
      if (givenBus === undefined) await bus[Symbol.asyncDispose]()
    },
  }
}

export interface Fixture {
  readonly upstream: FakeServer
  readonly tokens: FakeTokenService
  /** Disposes the fakes, and everything that the test has added to this stack, when the test ends. */
  readonly opened: AsyncDisposableStack
}

/** Starts a fake accounting API, and a fake token-service with a credential for each of the realms. */
export async function startFixture(
  realms: readonly string[] = ['1', '2'],
  handler: RequestHandler = echo,
): Promise<Fixture> {
  const opened = new AsyncDisposableStack()
  const upstream = opened.use(await startFakeServer(handler))
  return { opened, upstream, tokens: opened.use(await startFakeTokenService(realms)) }
}

/** Publishes a credential event in the same way as token-service. */
export async function publishEvent(
  bus: MessageBus,
  realm: string,
  kind: CredentialEventKind,
  version: number,
): Promise<void> {
  const at = new Date().toISOString()
  const body = { Name: `ACC-${realm}`, Environment: realm, Expiry: at, Version: version, At: at }
  await bus.publish({
    exchange: CREDENTIALS_EXCHANGE,
    routingKey: credentialRoutingKey(kind),
    messageId: credentialMessageId(body, kind),
    type: credentialRoutingKey(kind),
    body,
    mandatory: false,
  })
}
