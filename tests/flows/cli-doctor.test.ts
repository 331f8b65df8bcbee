import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/story-steps.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const PROGRAM = fileURLToPath(new URL('../../packages/cli/src/main.ts', import.meta.url))

interface Finding {
  readonly Subject: string
  readonly Check: string
  readonly Verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly Found: string
  readonly Mend: string | null
}

describe('doctor over a running system', () => {
  let system: System
  beforeAll(async () => {
    system = await startSystem()
    await connectCompany(system, '1')
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const surroundings = (): Record<string, string> => ({
    REDIS_URL: backend('TEST_REDIS_URL'),
    DATABASE_URL: system.databaseUrl,
    AMQP_URL: backend('TEST_AMQP_URL'),
    AMQP_PREFIX: system.amqpPrefix,
    DISCOVERY_URL: `${system.url('sandbox-provider')}/.well-known/openid_configuration`,
    TOKEN_SERVICE_URL: system.url('token-service'),
    GATEWAY_URL: system.url('accounting-gateway'),
    COORDINATOR_URL: system.url('coordinator'),
    DEMO_API_URL: system.url('demo-api'),
    SERVICE_API_KEY: system.serviceKey,
  })

  /** Runs the program as a process, as an operator would. */
  async function doctor(only: string, env: Readonly<Record<string, string>> = {}) {
    const { PATH = '' } = process.env
    const child = spawn(
      process.execPath,
      [PROGRAM, 'doctor', '--json', '--timeout', '3', '--only', only],
      { env: { PATH, ...surroundings(), ...env }, stdio: ['ignore', 'pipe', 'pipe'] },
    )
    const [out, err, [code]] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, 'close') as Promise<[number | null]>,
    ])
    expect(out + err).not.toContain(system.serviceKey)
    expect(out + err).not.toContain('a-wrong-password')
    const findings = out
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Finding)
    const wrong = findings.filter(({ Verdict }) => Verdict === 'problem')
    return { code, findings, wrong, err }
  }

  it('finds nothing wrong with it', async () => {
    const { code, findings, wrong } = await doctor(
      'postgres,rabbitmq,provider,token-service,accounting-gateway,coordinator,demo-api',
    )
    expect([code, wrong]).toEqual([0, []])
    const told = findings.map(({ Subject, Check, Found }) => `${Subject} ${Check}: ${Found}`)
    expect(told).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^postgres migrations: all \d+ applied$/),
        'rabbitmq queues: 12 of 12 as they should be',
        'token-service key ring: opens all 1 credentials',
        'coordinator processes: OrderProcess',
        'coordinator integrity: rows, items and queues agree',
        'demo-api ready: yes',
        'provider clock: agrees with this machine',
      ]),
    )
  })

  it('reads what Redis says of itself', async () => {
    const redis = new Redis(backend('TEST_REDIS_URL'))
    const [, appendonly] = await redis.config('GET', 'appendonly')
    redis.disconnect()
    const { findings } = await doctor('redis')
    expect(findings).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ Check: 'version', Verdict: 'ok' }),
        expect.objectContaining({ Check: 'maxmemory-policy', Found: 'noeviction' }),
        expect.objectContaining({
          Check: 'appendonly',
          Verdict: appendonly === 'yes' ? 'ok' : 'problem',
        }),
        expect.objectContaining({ Check: 'clock', Verdict: 'ok' }),
      ]),
    )
  })

  it('names the credential that does not open with the keys at hand', async () => {
    const redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
    const sealed = (await redis.hget('ACC-1', 'RefreshToken')) ?? ''
    // Whole, but in another's place.
    await redis.hset('ACC-1', 'RefreshToken', (await redis.hget('ACC-1', 'Authenticator')) ?? '')
    const { code, wrong } = await doctor('token-service')
    await redis.hset('ACC-1', 'RefreshToken', sealed)
    redis.disconnect()
    expect([code, wrong]).toMatchObject([
      1,
      [
        {
          Check: 'key ring',
          Found: 'does not open 1: ACC-1',
          Mend: expect.stringContaining('CREDENTIAL_KEYS'),
        },
      ],
    ])
  })

  it('tells a half-migrated database from one that is up to date', async () => {
    const sql = postgres(system.databaseUrl, { max: 1, onnotice: () => {} })
    const migrations = async () => (await doctor('postgres')).findings.filter(isMigration)
    const isMigration = ({ Check }: Finding): boolean => Check === 'migrations'
    await sql`alter table "Order_Item" rename column "Data" to "Data_lost"`
    expect(await migrations()).toMatchObject([
      { Verdict: 'problem', Found: 'half-migrated: Order_Item.Data is missing' },
    ])
    await sql`alter table "Order_Item" rename column "Data_lost" to "Data"`
    await sql`alter table drizzle.__drizzle_migrations rename to away`
    expect(await migrations()).toMatchObject([
      { Verdict: 'problem', Found: expect.stringContaining('no record of migrations') },
    ])
    await sql`alter table drizzle.away rename to __drizzle_migrations`
    expect(await migrations()).toMatchObject([{ Verdict: 'ok' }])
    await sql.end()
  })

  it('tells settings of a database that lose what was recorded, or refuse it', async () => {
    const name = new URL(system.databaseUrl).pathname.slice(1)
    const sql = postgres(backend('TEST_DATABASE_URL'), { max: 1, onnotice: () => {} })
    await sql`alter database ${sql(name)} set synchronous_commit = off`
    await sql`alter database ${sql(name)} set default_transaction_read_only = on`
    const { code, wrong } = await doctor('postgres')
    await sql`alter database ${sql(name)} reset all`
    await sql.end()
    expect([code, wrong.map(({ Check, Found }) => [Check, Found])]).toEqual([
      1,
      [
        ['synchronous_commit', 'off'],
        ['role', 'read only'],
      ],
    ])
    expect((await doctor('postgres')).wrong).toEqual([])
  })

  it('tells which queue has other arguments, while the coordinator waits for it to be mended', async () => {
    const name = `${system.amqpPrefix}steps.OrderProcess.report`
    const operator = await connect(backend('TEST_AMQP_URL'))
    const channel = await operator.createChannel()
    await system.service('coordinator').stop('SIGTERM')
    await channel.deleteQueue(name)
    await channel.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'quorum' } })

    const coordinator = system.start('coordinator')
    const reason = await eventually(async () => {
      const answer = await fetch(`${coordinator.url}/health/ready`)
      const report = (await answer.json()) as { dependencies: Record<string, { reason?: string }> }
      expect([answer.status, report.dependencies['rabbitmq']?.reason]).toEqual([
        503,
        expect.stringContaining(`queue ${name} exists with another x-`),
      ])
      return report.dependencies['rabbitmq']?.reason
    })
    expect(coordinator.output().match(/exchange or queue exists with incompatible arguments/g)).toHaveLength(1)

    const { code, wrong } = await doctor('rabbitmq,coordinator')
    expect(code).toBe(1)
    expect(wrong).toEqual([
      expect.objectContaining({
        Subject: 'rabbitmq',
        Check: 'queue',
        Found: expect.stringMatching(new RegExp(`^${name}: .* is .*, needs `)),
        Mend: expect.stringContaining('Delete it'),
      }),
      expect.objectContaining({
        Subject: 'coordinator',
        Check: 'ready',
        Found: expect.stringContaining(reason ?? ''),
      }),
    ])

    await channel.deleteQueue(name)
    await operator.close()
    await system.ready('coordinator')
    expect((await doctor('rabbitmq,coordinator')).wrong).toEqual([])
  })

  it('has one line for each backend where nobody listens', async () => {
    const { code, findings } = await doctor('redis,postgres,rabbitmq,provider,demo-api', {
      REDIS_URL: 'redis://127.0.0.1:2',
      DATABASE_URL: 'postgresql://postgres@127.0.0.1:2/x',
      AMQP_URL: 'amqp://127.0.0.1:2',
      DISCOVERY_URL: 'http://127.0.0.1:2/x',
      DEMO_API_URL: 'http://127.0.0.1:2',
    })
    expect([code, findings.map(({ Subject }) => Subject)]).toEqual([
      1,
      ['redis', 'postgres', 'rabbitmq', 'provider', 'demo-api'],
    ])
    for (const { Found } of findings) expect(Found).toBe('127.0.0.1:2: no process listens there')
  })

  it('says that a password is wrong, and shows none', async () => {
    const url = new URL(backend('TEST_AMQP_URL'))
    url.password = 'a-wrong-password'
    const { code, findings } = await doctor('rabbitmq', { AMQP_URL: url.href })
    expect([code, findings]).toMatchObject([
      1,
      [{ Found: `${url.host}: rejects the user, the password, or the virtual host` }],
    ])
  })

  it('ends in time, with one line for each that takes connections and says nothing', async () => {
    const sockets = new Set<Socket>()
    const silent = createServer((socket) => void sockets.add(socket.on('error', () => {})))
    silent.listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const { port } = silent.address() as { port: number }
    const { code, findings } = await doctor('redis,postgres,rabbitmq,provider,coordinator', {
      REDIS_URL: `redis://127.0.0.1:${port}`,
      DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/x`,
      AMQP_URL: `amqp://127.0.0.1:${port}`,
      DISCOVERY_URL: `http://127.0.0.1:${port}/x`,
      COORDINATOR_URL: `http://127.0.0.1:${port}`,
    })
    for (const socket of sockets) socket.destroy()
    silent.close()
    expect(code).toBe(1)
    expect(findings.map(({ Subject }) => Subject)).toEqual([
      'redis',
      'postgres',
      'rabbitmq',
      'provider',
      'coordinator',
    ])
    for (const { Found } of findings) expect(Found).toContain('does not respond in time')
  })
})
