/**
 * A whole system: each service as a separate process, with real Redis, RabbitMQ and PostgreSQL. Every system has its
 * own database, Redis key prefix and AMQP prefix, which are removed when the system is disposed of.
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import {
  generateKeyRing,
  type KeyRing,
  parseKeyRing,
} from '@integration-host/shared/secrets/envelope'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { DEVIATION } from './openapi/deviations.ts'
import {
  listeningUrl,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { removeTopology } from './topology.ts'

/** The services that a system starts by default. They can be started in any order. */
export const serviceNames = [
  'token-service',
  'accounting-gateway',
  'coordinator',
  'demo-api',
  'sandbox-provider',
] as const
/** A system starts the webhook receiver only if a test names it. */
const allNames = [...serviceNames, 'webhook-receiver'] as const
export type ServiceName = (typeof allNames)[number]

export interface ServiceProcess extends StartedProcess {
  /** The URL with the configured port. If the configured port is 0, `listeningUrl` finds the actual address. */
  readonly url: string
}

export interface System extends AsyncDisposable {
  readonly serviceKey: string
  readonly dataDir: string
  readonly databaseUrl: string
  readonly amqpPrefix: string
  readonly redisKeyPrefix: string
  /** The key ring with which token-service is started, unless a test passes other CREDENTIAL_KEYS. */
  readonly credentialKeys: KeyRing
  /** The token with which notifications for the webhook receiver are signed. */
  readonly verifierToken: string
  url(name: ServiceName): string
  service(name: ServiceName): ServiceProcess
  /**
   * Starts a service, without waiting until it is ready. `entry` is the path of the entry module; the default is
   * the service's main module.
   */
  start(name: ServiceName, env?: Readonly<Record<string, string>>, entry?: string): ServiceProcess
  /** Starts another replica of a service on a free port. Resolves when the replica is ready. */
  replica(name: ServiceName, env?: Readonly<Record<string, string>>): Promise<ServiceProcess>
  /** Resolves when each of the services responds 200 at `/health/ready`. */
  ready(...names: readonly ServiceName[]): Promise<void>
  /** Sends a request with the service key. */
  call(url: string, init?: RequestInit): Promise<Response>
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
// Each response is checked against the service's OpenAPI document in tests, but not in benchmarks.
const CONFORMANCE_CHECK =
  process.env['VITEST'] === undefined
    ? []
    : ['--import', new URL('openapi/check-service-process.ts', import.meta.url).href]
/** The time within which a started service must be ready. On a loaded machine, a start has taken 48 seconds. */
export const READY_DEADLINE_MS = 60_000

/** The providers that the sandbox can imitate (services/sandbox-provider/src/control/personalities.ts). */
export const personalities = ['intuit', 'strict'] as const
export type Personality = (typeof personalities)[number]

export interface SystemOptions {
  /**
   * The provider that the sandbox imitates. The services are started with the profile of this provider. Default:
   * `intuit`.
   */
  readonly personality?: Personality
  /** The folder of another checkout of this repository. If given, the services of that checkout are started. */
  readonly checkout?: string
  /** The PostgreSQL server in which the database is created. Default: the server that the global setup has found. */
  readonly databaseServer?: string
}

/**
 * Creates the database and the names of a system, then starts the given services. By default all services are
 * started.
 */
export async function startSystem(
  names: readonly ServiceName[] = serviceNames,
  options: SystemOptions = {},
): Promise<System> {
  const { personality = 'intuit', checkout = ROOT } = options
  const { databaseServer = backend('TEST_DATABASE_URL') } = options
  const id = `t${randomBytes(5).toString('hex')}`
  const dataDir = await mkdtemp(join(tmpdir(), 'integration-host-'))
  const serviceKey = `test-key-${randomBytes(24).toString('base64url')}`
  const credentialKeys = generateKeyRing()
  const clientSecret = randomBytes(24).toString('base64url')
  const verifierToken = randomBytes(24).toString('base64url')
  const ports = new Map<ServiceName, number>()
  for (const name of allNames) ports.set(name, await freePort())
  const url = (name: ServiceName): string => `http://127.0.0.1:${ports.get(name)}`
  const databaseUrl = await createDatabase(databaseServer, id)
  const prefix = `${id}.`

  const everywhere = {
    LOG_LEVEL: 'info',
    SERVICE_API_KEY: serviceKey,
    REDIS_KEY_PREFIX: prefix,
    AMQP_PREFIX: prefix,
  }
  const redis = { REDIS_URL: backend('TEST_REDIS_URL') }
  const amqp = { AMQP_URL: backend('TEST_AMQP_URL') }
  const provider = { DISCOVERY_URL: `${url('sandbox-provider')}/.well-known/openid_configuration` }
  const client = {
    CLIENT_ID: 'integration-host',
    CLIENT_SECRET: clientSecret,
    REDIRECT: `${url('token-service')}/callback`,
  }
  const profile = { PROVIDER_PROFILE: personality === 'intuit' ? 'intuit' : 'generic' }
  const settings: Record<ServiceName, Record<string, string>> = {
    'sandbox-provider': {
      ...client,
      PERSONALITY: personality,
      DISCONNECT_URL: `${url('token-service')}/disconnected`,
    },
    'token-service': {
      ...redis,
      ...amqp,
      ...provider,
      ...client,
      AUTHORIZE: 'open',
      CREDENTIAL_KEYS: credentialKeys.reveal(),
      ...profile,
    },
    'accounting-gateway': {
      ...redis,
      ...amqp,
      ...provider,
      ...profile,
      // The discovery document of the strict sandbox contains the accounting URL. Intuit's discovery document does not
      // contain it.
      ...(personality === 'intuit' && { ACCOUNTING_URL: url('sandbox-provider') }),
      TOKEN_SERVICE_URL: url('token-service'),
    },
    coordinator: {
      ...amqp,
      DATABASE_URL: databaseUrl,
      DEMO_API_URL: url('demo-api'),
      GATEWAY_URL: url('accounting-gateway'),
      DATA_DIR: dataDir,
    },
    'demo-api': { COORDINATOR_URL: url('coordinator') },
    'webhook-receiver': { ...amqp, WEBHOOK_VERIFIER_TOKENS: verifierToken },
  }

  /** The latest process of each service, by service name. `all` also contains the earlier processes. */
  const processes = new Map<ServiceName, ServiceProcess>()
  const all: ServiceProcess[] = []
  const startAt = (
    name: ServiceName,
    port: number | undefined,
    env: Readonly<Record<string, string>>,
    entry = 'src/main.ts',
  ): ServiceProcess => {
    const started: ServiceProcess = {
      url: `http://127.0.0.1:${port}`,
      ...startProcess([...CONFORMANCE_CHECK, `services/${name}/${entry}`], {
        cwd: checkout,
        env: { ...everywhere, ...settings[name], PORT: String(port), ...env },
      }),
    }
    all.push(started)
    return started
  }
  const system: System = {
    serviceKey,
    dataDir,
    databaseUrl,
    amqpPrefix: prefix,
    redisKeyPrefix: prefix,
    credentialKeys: parseKeyRing(credentialKeys),
    verifierToken,
    url,
    service(name) {
      const process = processes.get(name)
      if (process === undefined) throw new Error(`${name} was not started`)
      return process
    },
    start(name, env = {}, entry) {
      const started = startAt(name, ports.get(name), env, entry)
      processes.set(name, started)
      return started
    },
    async replica(name, env = {}) {
      // The operating system chooses a free port at the moment when the service begins to listen. Therefore no other
      // process can bind this port first.
      const listening = startAt(name, 0, env)
      const started = { ...listening, url: await listeningUrl(listening) }
      await untilReady(name, started)
      return started
    },
    async ready(...wanted) {
      await Promise.all(
        wanted.map((name) => untilReady(name, { ...system.service(name), url: url(name) })),
      )
    },
    call: (target, init = {}) =>
      fetch(target, {
        ...init,
        headers: {
          Authorization: `Bearer ${serviceKey}`,
          ...(init.headers as Record<string, string>),
        },
      }),
    async [Symbol.asyncDispose]() {
      await Promise.all(all.map((process) => process.stop('SIGKILL')))
      await Promise.all([
        dropDatabase(databaseServer, id),
        removeKeys(prefix),
        removeTopology(backend('TEST_AMQP_URL'), prefix),
        rm(dataDir, { recursive: true }),
      ])
      const deviations = all.flatMap((process) =>
        process
          .output()
          .split('\n')
          .filter((line) => line.startsWith(DEVIATION)),
      )
      if (deviations.length > 0) throw new Error(deviations.join('\n'))
    },
  }
  try {
    for (const name of names) system.start(name)
    await system.ready(...names)
  } catch (error) {
    await system[Symbol.asyncDispose]()
    throw error
  }
  return system
}

/** Returns the URL of a backend that the global setup has found. */
export function backend(
  variable: 'TEST_DATABASE_URL' | 'TEST_REDIS_URL' | 'TEST_AMQP_URL',
): string {
  const url = process.env[variable]
  if (!url)
    throw new Error(`${variable} is not set: tests run through vitest, whose global setup sets it`)
  return url
}

async function untilReady(
  name: ServiceName,
  { url, output, ended }: Pick<ServiceProcess, 'url' | 'output' | 'ended'>,
): Promise<void> {
  const deadline = Date.now() + READY_DEADLINE_MS
  let hasEnded = false
  void ended.then(() => (hasEnded = true))
  while (Date.now() < deadline) {
    // If the port of a service is taken, the service ends. The response would then be from the program that uses the
    // port.
    if (hasEnded) throw new Error(`${name} ended before it was ready; output:\n${output()}`)
    const response = await fetch(`${url}/health/ready`).catch(() => null)
    await response?.body?.cancel()
    if (response?.ok) return
    await delay(25)
  }
  throw new Error(`${name} was not ready in time; output:\n${output()}`)
}

async function withServer<T>(server: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(server, { max: 1, onnotice: () => {} })
  try {
    return await work(sql)
  } finally {
    await sql.end()
  }
}

async function createDatabase(server: string, name: string): Promise<string> {
  await withServer(server, (sql) => sql`create database ${sql(name)}`)
  const url = new URL(server)
  url.pathname = `/${name}`
  return url.href
}

async function dropDatabase(server: string, name: string): Promise<void> {
  await withServer(server, (sql) => sql`drop database ${sql(name)} with (force)`)
}

async function removeKeys(prefix: string): Promise<void> {
  const redis = new Redis(backend('TEST_REDIS_URL'))
  for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 }) as AsyncIterable<
    string[]
  >) {
    if (keys.length > 0) await redis.unlink(...keys)
  }
  redis.disconnect()
}
