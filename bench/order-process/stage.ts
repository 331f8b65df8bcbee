/**
 * Starts the processes and creates the stores of one entry for one round, under unique names. Everything is removed
 * afterwards.
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type System, startSystem } from '@integration-host/tests/system'
import { Client } from 'pg'
import { startPrivateRedis } from '../support/private-redis.ts'
import { type DriverProcess, startDriver } from './driver-process.ts'
import type { EngineSettings } from './engine.ts'
import type { Entry } from './entries.ts'
import { processBehind } from './ports.ts'
import { type RestateServer, startRestateServer } from './restate-server.ts'

const PAYLOAD_KEY = `k1:${randomBytes(32).toString('base64')}`
const IN_MEMORY = '/dev/shm'
const INLINE_DISPATCH = fileURLToPath(new URL('inline-dispatch.ts', import.meta.url))

export interface Stage extends AsyncDisposable {
  readonly driver: DriverProcess
  /** OS process ids of the entry's driver or coordinator and of its servers, by name. */
  readonly pids: Readonly<Record<string, number>>
  /** Names of the files that the last step wrote. */
  files(): Promise<readonly string[]>
}

export interface StageOptions {
  readonly stubUrl: string
  readonly concurrency: number
  /**
   * Whether CSV files are written to the disk of the temporary folder. Otherwise a memory file system is used if
   * the machine has one.
   */
  readonly onDisk: boolean
  /** Folder for a CPU profile of the coordinator's Node process. */
  readonly profileTo?: string
  /** Aborts the round. Even then, the processes of the round are stopped and its stores are removed. */
  readonly leaving: AbortSignal
  /** A system whose existing database is used with its content. If absent, a new database is created. */
  readonly system?: System
}

/** Starts everything that the entry needs. Resolves when the entry's driver accepts transactions. */
export async function setStage(entry: Entry, options: StageOptions): Promise<Stage> {
  await using opened = new AsyncDisposableStack()
  const system =
    options.system ??
    opened.use(
      await startSystem([], entry.checkout === undefined ? {} : { checkout: entry.checkout }),
    )
  const dataDir = opened.adopt(
    await mkdtemp(join(options.onDisk ? tmpdir() : IN_MEMORY, 'integration-host-bench-')),
    (path) => rm(path, { recursive: true }),
  )
  const pids: Record<string, number> = {}
  const uses = new Set(entry.backends)
  let redisUrl = ''
  let restate: RestateServer['settings'] = { ingressUrl: '', adminUrl: '', endpointPort: 0 }
  if (uses.has('postgres')) {
    await prepare(system.databaseUrl)
    pids['postgres'] = processBehind(system.databaseUrl, 5_432)
  }
  if (uses.has('rabbitmq'))
    pids['rabbitmq'] = processBehind(process.env['TEST_AMQP_URL'] ?? '', 5_672)
  if (uses.has('redis') || uses.has('redis-always')) {
    const { redis, url } = opened.use(await startPrivateRedis({ appendOnly: true }))
    if (uses.has('redis-always')) await redis.config('SET', 'appendfsync', 'always')
    redisUrl = url
    pids['redis'] = processBehind(url, 6_379)
  }
  if (uses.has('restate')) {
    const server = opened.use(await startRestateServer())
    restate = server.settings
    pids['restate'] = server.pid
  }
  if (entry.isOurs) {
    const env = {
      DATA_DIR: dataDir,
      DEMO_API_URL: options.stubUrl,
      LOG_LEVEL: 'warn',
      PREFETCH: String(options.concurrency),
      NODE_OPTIONS: nodeOptions(entry, options.profileTo),
      ...(entry.hasPayloadKeys === true && { PAYLOAD_KEYS: PAYLOAD_KEY }),
    }
    const coordinator = system.start('coordinator', env)
    opened.defer(async () => void (await coordinator.stop('SIGTERM')))
    await system.ready('coordinator')
    pids['node'] = coordinator.pid
    for (let n = 2; n <= (entry.replicas ?? 1); n += 1) {
      const replica = await system.replica('coordinator', env)
      opened.defer(async () => void (await replica.stop('SIGTERM')))
      pids[`node ${n}`] = replica.pid
    }
  }
  const settings: EngineSettings = {
    concurrency: options.concurrency,
    variant: entry.variant ?? '',
    byEvents: entry.byEvents === true,
    stubUrl: options.stubUrl,
    dataDir,
    databaseUrl: system.databaseUrl,
    redisUrl,
    amqp: { url: process.env['TEST_AMQP_URL'] ?? '', prefix: system.amqpPrefix },
    coordinator: { url: system.url('coordinator'), key: system.serviceKey },
    restate,
  }
  const driver = opened.use(await startDriver(entry.engine, settings, options.leaving))
  // For the coordinator, the driver process is only the client. For every other engine, it is both client and worker,
  // so its processor time counts.
  if (!entry.isOurs) pids['node'] = driver.pid
  const running = opened.move()
  return {
    driver,
    pids,
    async files() {
      const names = await readdir(join(dataDir, 'OrderCSV'))
      return names.filter((name) => name.endsWith('.csv'))
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}

const nodeOptions = ({ variant }: Entry, profileTo: string | undefined): string =>
  [
    ...(variant === 'inline' ? [`--import=${INLINE_DISPATCH}`] : []),
    ...(profileTo === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profileTo}`]),
  ].join(' ')

/** @throws {Error} unless commits are durable, because results without durability would not be comparable */
async function prepare(databaseUrl: string): Promise<void> {
  const client = new Client({ connectionString: databaseUrl })
  await client.connect()
  try {
    for (const setting of ['fsync', 'synchronous_commit', 'full_page_writes']) {
      const { rows } = await client.query<Record<string, string>>(`show ${setting}`)
      if (rows[0]?.[setting] !== 'on') throw new Error(`PostgreSQL must have ${setting} = on`)
    }
    // A checkpoint is written before the round. Otherwise PostgreSQL would flush pages of the previous round during
    // this round.
    await client.query('checkpoint')
  } finally {
    await client.end()
  }
}
