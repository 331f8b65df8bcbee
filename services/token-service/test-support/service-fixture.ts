/** Starts token services for tests, on Redis with a random key prefix or on the embedded adapters. */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import {
  generateKeyRing,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { createHealth, type Health } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger, type Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { createFileCredentialStore } from '../src/adapters/file/credential-store.ts'
import type { AuthorizationStore } from '../src/authorization/authorization-store.ts'
import type { ConnectLinkStore } from '../src/authorization/connect-link-store.ts'
import { openRedisStores } from '../src/backends.ts'
import { readEmbeddedConfig } from '../src/config.ts'
import type { CredentialStore, StoreConnection } from '../src/credential/credential-store.ts'
import type { Failpoint, RefreshTiming } from '../src/credential/refresh.ts'
import type { RescueFolder } from '../src/credential/restoration.ts'
import { startTokenService } from '../src/service.ts'
import { CLIENT_ID, CLIENT_SECRET, type ScriptedProvider } from './scripted-provider.ts'

export const SERVICE_KEY = 'test-service-key-0123456789-0123456789'
export const silent: Logger = createLogger('test', 'silent')
export const testKeys = (): KeyRing => parseKeyRing(generateKeyRing())

/** The Redis adapters with a random key prefix; {@link dropKeys} deletes the keys with that prefix. */
export type TestRedis = ReturnType<typeof openRedisStores> & {
  readonly prefix: string
  readonly health: Health
}

export async function openTestRedis(options: {
  readonly keys: KeyRing
  readonly prefix?: string
  readonly url?: string
  readonly logger?: Logger
  /** The setting `REDIS_REPLICAS`; 0 by default. */
  readonly replicas?: number
}): Promise<TestRedis> {
  const { keys, prefix = `test-${randomBytes(5).toString('hex')}:`, logger = silent } = options
  const health = createHealth(logger)
  const config = {
    REDIS_URL: new Secret(options.url ?? process.env['TEST_REDIS_URL'] ?? ''),
    REDIS_KEY_PREFIX: prefix,
    REDIS_REPLICAS: options.replicas ?? 0,
    AUDIT_ENTRIES: 1_000,
  }
  return { prefix, health, ...openRedisStores(config, { keys, health, logger }) }
}

/** Resolves when every dependency in the health report is up. */
export async function usable({ health }: { readonly health: Health }): Promise<void> {
  await eventually(() => {
    const { status, dependencies } = health.report()
    if (status !== 'ready') throw new Error(`not usable: ${JSON.stringify(dependencies)}`)
  })
}

/** Opens the Redis adapters, and waits until they are usable. Their keys are deleted with `closing`. */
export async function useTestRedis(
  closing: AsyncDisposableStack,
  options: Parameters<typeof openTestRedis>[0],
): Promise<TestRedis> {
  const redis = await openTestRedis(options)
  closing.defer(() => dropKeys(redis.prefix))
  closing.use(redis)
  await usable(redis)
  return redis
}

/** Deletes all keys with a prefix. */
export async function dropKeys(prefix: string): Promise<void> {
  const redis = new Redis(process.env['TEST_REDIS_URL'] ?? '')
  for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 })) {
    const found = keys as string[]
    if (found.length > 0) await redis.del(...found)
  }
  redis.disconnect()
}

/** The delays of the refresh protocol for tests. They are shorter than the defaults, but in the same proportions. */
const quickTiming: Partial<RefreshTiming> = {
  leaseMs: 900,
  intentMaxAgeMs: 600,
  failoverDeferralMs: 2_000,
  ambiguousRetryDelayMs: 50,
  pollMs: 20,
  waitTimeoutMs: 8_000,
  commitDeadlineMs: 500,
}

export interface ServiceOptions {
  readonly provider: ScriptedProvider
  readonly store: CredentialStore
  readonly connection?: StoreConnection
  readonly rescue?: RescueFolder
  readonly authorizations?: AuthorizationStore
  readonly links?: ConnectLinkStore
  readonly bus?: MessageBus
  readonly metrics?: Metrics
  readonly keys: KeyRing
  readonly health?: Health
  readonly logger?: Logger
  readonly env?: Readonly<Record<string, string>>
  readonly timing?: Partial<RefreshTiming>
  readonly failpoint?: (point: Failpoint, name: string) => Promise<void> | void
}

export interface TestService extends AsyncDisposable {
  readonly url: string
  /** Sends a request with the service key. */
  call(path: string, init?: RequestInit): Promise<Response>
  /** Connects a company by `POST /callback` with a new code of the provider. */
  connect(realm: string): Promise<Response>
  /** Sends a request with the service key and reads status and JSON body. */
  ask(path: string, init?: RequestInit): Promise<{ status: number; body: Record<string, unknown> }>
}

export async function startTestService(options: ServiceOptions): Promise<TestService> {
  const { provider, keys, logger = silent } = options
  const config = readEmbeddedConfig({
    PORT: '0',
    LOG_LEVEL: 'info',
    SERVICE_API_KEY: SERVICE_KEY,
    DISCOVERY_URL: provider.discoveryUrl,
    CLIENT_ID,
    CLIENT_SECRET,
    REDIRECT: 'http://127.0.0.1:7217/callback',
    AUTHORIZE: 'open',
    CREDENTIAL_KEYS: `unused:${Buffer.alloc(32).toString('base64')}`,
    ...options.env,
  })
  const health = options.health ?? createHealth(logger)
  const service = await startTokenService(
    { ...config, CREDENTIAL_KEYS: keys },
    {
      logger,
      health,
      store: options.store,
      bus: options.bus ?? createInProcessBus(logger),
      timing: { ...quickTiming, ...options.timing },
      ...(options.metrics !== undefined && { metrics: options.metrics }),
      ...(options.connection !== undefined && { connection: options.connection }),
      ...(options.rescue !== undefined && { rescue: options.rescue }),
      ...(options.authorizations !== undefined && { authorizations: options.authorizations }),
      ...(options.links !== undefined && { links: options.links }),
      ...(options.failpoint !== undefined && { failpoint: options.failpoint }),
    },
  )
  const call = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(service.url + path, {
      redirect: 'manual',
      ...init,
      headers: {
        Authorization: `Bearer ${SERVICE_KEY}`,
        ...(init.headers as Record<string, string>),
      },
    })
  return {
    url: service.url,
    call,
    connect: (realm) => call('/callback', json({ RealmID: realm, Code: provider.authorize() })),
    async ask(path, init) {
      const response = await call(path, init)
      const body = await response.text()
      return {
        status: response.status,
        body: body === '' ? {} : (JSON.parse(body) as Record<string, unknown>),
      }
    },
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
}

/** Returns the options of a POST with a JSON body. */
export const json = (body: unknown): RequestInit => ({
  method: 'POST',
  headers: { 'Content-Type': 'application/json' },
  body: JSON.stringify(body),
})

/** Opens a file store in a new temporary folder. */
export async function openTestFile(keys: KeyRing): Promise<{
  readonly folder: string
  readonly store: CredentialStore & AsyncDisposable
  remove(): Promise<void>
}> {
  const folder = await mkdtemp(join(tmpdir(), 'token-service-'))
  const store = await createFileCredentialStore(folder, keys)
  return {
    folder,
    store,
    async remove() {
      await store[Symbol.asyncDispose]()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Starts a token service on a file store with keys of its own. Both are closed with `closing`. */
export async function startFileService(
  closing: AsyncDisposableStack,
  options: Omit<ServiceOptions, 'store' | 'keys'>,
): Promise<TestService> {
  const keys = testKeys()
  const file = await openTestFile(keys)
  closing.defer(() => file.remove())
  return closing.use(await startTestService({ ...options, store: file.store, keys }))
}
