/**
 * The whole system as its own processes on real Redis, RabbitMQ and Postgres, with names of its own:
 * a database, a Redis key prefix and an AMQP prefix per system, all removed at the end.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { DEVIATION } from './openapi/deviations.ts'
import { removeTopology } from './topology.ts'

/** In the order of the design's table; any order of starting works. */
export const serviceNames = [
  'token-service',
  'accounting-gateway',
  'coordinator',
  'demo-api',
  'sandbox-provider',
] as const
export type ServiceName = (typeof serviceNames)[number]

export interface ServiceProcess {
  readonly url: string
  readonly pid: number
  /** Everything it wrote so far, standard output and standard error together. */
  output(): string
  /** Ends it and resolves with its exit code once it is gone; null when a signal ended it. */
  stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null>
}

export interface System extends AsyncDisposable {
  readonly serviceKey: string
  readonly dataDir: string
  readonly databaseUrl: string
  readonly amqpPrefix: string
  readonly redisKeyPrefix: string
  url(name: ServiceName): string
  service(name: ServiceName): ServiceProcess
  /** Starts a service, without waiting until it is ready; `entry` in place of its main. */
  start(name: ServiceName, env?: Readonly<Record<string, string>>, entry?: string): ServiceProcess
  /** One more process of a service beside the started one, on a port of its own. Resolves when it is ready. */
  replica(name: ServiceName, env?: Readonly<Record<string, string>>): Promise<ServiceProcess>
  /** Resolves when `/health/ready` of each answers 200. */
  ready(...names: readonly ServiceName[]): Promise<void>
  /** A call with the service key. */
  call(url: string, init?: RequestInit): Promise<Response>
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
// Under test a service is held to its OpenAPI document; a benchmark measures the service alone.
const HELD =
  process.env['VITEST'] === undefined
    ? []
    : ['--import', new URL('openapi/hold-process.ts', import.meta.url).href]
const READY_DEADLINE_MS = 60_000

/** What the sandbox is (services/sandbox-provider/src/control/personalities.ts). */
export const personalities = ['intuit', 'strict'] as const
export type Personality = (typeof personalities)[number]

export interface SystemOptions {
  /** Of the sandbox; the services then assume the provider that this is. Default: `intuit`. */
  readonly personality?: Personality
}

/** Makes the system's own database and names; starts the services named, all of them when none is. */
export async function startSystem(
  names: readonly ServiceName[] = serviceNames,
  { personality = 'intuit' }: SystemOptions = {},
): Promise<System> {
  const id = `t${randomBytes(5).toString('hex')}`
  const dataDir = await mkdtemp(join(tmpdir(), 'integration-host-'))
  const serviceKey = `test-key-${randomBytes(24).toString('base64url')}`
  const clientSecret = randomBytes(24).toString('base64url')
  const ports = new Map<ServiceName, number>()
  for (const name of serviceNames) ports.set(name, await freePort())
  const url = (name: ServiceName): string => `http://127.0.0.1:${ports.get(name)}`
  const databaseUrl = await createDatabase(id)
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
    'sandbox-provider': { ...client, PERSONALITY: personality },
    'token-service': {
      ...redis,
      ...amqp,
      ...provider,
      ...client,
      CREDENTIAL_KEYS: `k1:${randomBytes(32).toString('base64')}`,
      ...profile,
    },
    'accounting-gateway': {
      ...redis,
      ...amqp,
      ...provider,
      ...profile,
      // Only the strict sandbox names it in its discovery document.
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
  }

  /** The newest of each name; `all` has every one that was ever started. */
  const processes = new Map<ServiceName, ServiceProcess>()
  const all: ServiceProcess[] = []
  const startAt = (
    name: ServiceName,
    port: number | undefined,
    env: Readonly<Record<string, string>>,
    entry = 'src/main.ts',
  ): ServiceProcess => {
    const started = startProcess(`services/${name}/${entry}`, `http://127.0.0.1:${port}`, {
      ...everywhere,
      ...settings[name],
      PORT: String(port),
      ...env,
    })
    all.push(started)
    return started
  }
  const system: System = {
    serviceKey,
    dataDir,
    databaseUrl,
    amqpPrefix: prefix,
    redisKeyPrefix: prefix,
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
      const started = startAt(name, await freePort(), env)
      await untilReady(name, started.url, () => started.output())
      return started
    },
    async ready(...wanted) {
      await Promise.all(
        wanted.map((name) => untilReady(name, url(name), () => system.service(name).output())),
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
        dropDatabase(id),
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

/** Where a backend is; the global setup has found it. */
export function backend(
  variable: 'TEST_DATABASE_URL' | 'TEST_REDIS_URL' | 'TEST_AMQP_URL',
): string {
  const url = process.env[variable]
  if (!url)
    throw new Error(`${variable} is not set: tests run through vitest, whose global setup sets it`)
  return url
}

function startProcess(
  entry: string,
  url: string,
  env: Readonly<Record<string, string>>,
): ServiceProcess {
  const { PATH = '' } = process.env
  const child: ChildProcess = spawn(process.execPath, [...HELD, entry], {
    cwd: ROOT,
    env: { PATH, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  child.stdout?.on('data', (data: Buffer) => (output += data.toString()))
  child.stderr?.on('data', (data: Buffer) => (output += data.toString()))
  const gone = once(child, 'exit') as Promise<[number | null]>
  return {
    url,
    pid: child.pid ?? 0,
    output: () => output,
    async stop(signal) {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal)
      const [code] = await gone
      return code
    },
  }
}

async function untilReady(name: ServiceName, url: string, output: () => string): Promise<void> {
  const deadline = Date.now() + READY_DEADLINE_MS
  while (Date.now() < deadline) {
    const answer = await fetch(`${url}/health/ready`).catch(() => null)
    await answer?.body?.cancel()
    if (answer?.ok) return
    await delay(25)
  }
  throw new Error(`${name} was not ready in time; it wrote:\n${output()}`)
}

async function withServer<T>(work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(backend('TEST_DATABASE_URL'), { max: 1, onnotice: () => {} })
  try {
    return await work(sql)
  } finally {
    await sql.end()
  }
}

async function createDatabase(name: string): Promise<string> {
  await withServer((sql) => sql`create database ${sql(name)}`)
  const url = new URL(backend('TEST_DATABASE_URL'))
  url.pathname = `/${name}`
  return url.href
}

async function dropDatabase(name: string): Promise<void> {
  await withServer((sql) => sql`drop database ${sql(name)} with (force)`)
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
