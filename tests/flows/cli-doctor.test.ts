import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { backend, startSystem, type System } from '../support/system.ts'

interface CheckResult {
  readonly Subject: string
  readonly Check: string
  readonly Verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly Found: string
  readonly Mend: string | null
}

describe('the doctor command against a running system', () => {
  let system: System
  beforeAll(async () => {
    system = await startSystem()
    await connectCompany(system, '1')
  })
  afterAll(() => system[Symbol.asyncDispose]())

  const addresses = (): Record<string, string> => ({
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

  async function doctor(only: string, env: Readonly<Record<string, string>> = {}) {
    const { code, stdout, stderr } = await runCli(
      ['doctor', '--json', '--timeout', '3', '--only', only],
      { env: { ...addresses(), ...env } },
    )
    expect(stdout + stderr).not.toContain(system.serviceKey)
    expect(stdout + stderr).not.toContain('a-wrong-password')
    const results = parseJsonLines<CheckResult>(stdout)
    // A PostgreSQL server that the tests have started runs with fsync = off, and doctor reports this.
    const problems = results.filter(
      ({ Verdict, Check }) => Verdict === 'problem' && Check !== 'fsync',
    )
    return { code, results, problems }
  }

  it('doctor reports no problem in a healthy system', async () => {
    const { code, results, problems } = await doctor(
      'rabbitmq,provider,token-service,accounting-gateway,coordinator,demo-api',
    )
    expect([code, problems]).toEqual([0, []])
    const database = await doctor('postgres')
    expect(database.problems).toEqual([])
    const reported = [...results, ...database.results].map(
      ({ Subject, Check, Found }) => `${Subject} ${Check}: ${Found}`,
    )
    expect(reported).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^postgres migrations: all \d+ applied$/),
        'rabbitmq queues: 19 of 19 are correct',
        'token-service key ring: decrypts all 1 credentials',
        'coordinator processes: OrderProcess',
        'coordinator integrity: rows, items and queues agree',
        'demo-api ready: yes',
        'provider clock: agrees with this machine',
      ]),
    )
  })

  it('doctor reports an unsafe configuration of Redis', async () => {
    const redis = new Redis(backend('TEST_REDIS_URL'))
    const [, appendonly] = await redis.config('GET', 'appendonly')
    redis.disconnect()
    const { results } = await doctor('redis')
    expect(results).toEqual(
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

  it('doctor reports a credential that the configured keys cannot decrypt', async () => {
    const redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
    const sealed = (await redis.hget('ACC-1', 'RefreshToken')) ?? ''
    // A field gets the valid ciphertext of another field. The ciphertext authenticates the field's name, so the
    // decryption must fail.
    await redis.hset('ACC-1', 'RefreshToken', (await redis.hget('ACC-1', 'Authenticator')) ?? '')
    const { code, problems } = await doctor('token-service')
    await redis.hset('ACC-1', 'RefreshToken', sealed)
    redis.disconnect()
    expect([code, problems]).toMatchObject([
      1,
      [
        {
          Check: 'key ring',
          Found: 'does not decrypt 1: ACC-1',
          Mend: expect.stringContaining('CREDENTIAL_KEYS'),
        },
      ],
    ])
  })

  it('doctor reports a partly migrated database, and accepts an up-to-date one', async () => {
    const sql = postgres(system.databaseUrl, { max: 1, onnotice: () => {} })
    const migrations = async () => (await doctor('postgres')).results.filter(isMigration)
    const isMigration = ({ Check }: CheckResult): boolean => Check === 'migrations'
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

  it('doctor reports PostgreSQL settings with which writes are lost or rejected', async () => {
    const name = new URL(system.databaseUrl).pathname.slice(1)
    const sql = postgres(backend('TEST_DATABASE_URL'), { max: 1, onnotice: () => {} })
    await sql`alter database ${sql(name)} set synchronous_commit = off`
    await sql`alter database ${sql(name)} set default_transaction_read_only = on`
    const { code, problems } = await doctor('postgres')
    await sql`alter database ${sql(name)} reset all`
    await sql.end()
    expect([code, problems.map(({ Check, Found }) => [Check, Found])]).toEqual([
      1,
      [
        ['synchronous_commit', 'off'],
        ['role', 'read only'],
      ],
    ])
    expect((await doctor('postgres')).problems).toEqual([])
  })

  it('doctor reports a queue with incompatible arguments, and the coordinator starts after the queue was fixed', async () => {
    const name = `${system.amqpPrefix}steps.OrderProcess.report`
    const operator = await connect(backend('TEST_AMQP_URL'))
    const channel = await operator.createChannel()
    await system.service('coordinator').stop('SIGTERM')
    await channel.deleteQueue(name)
    await channel.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'quorum' } })

    const coordinator = system.start('coordinator')
    const reason = await eventually(async () => {
      const response = await fetch(`${coordinator.url}/health/ready`)
      const report = (await response.json()) as {
        dependencies: Record<string, { reason?: string }>
      }
      expect([response.status, report.dependencies['rabbitmq']?.reason]).toEqual([
        503,
        expect.stringContaining(`queue ${name} exists with another x-`),
      ])
      return report.dependencies['rabbitmq']?.reason
    })
    expect(
      coordinator.output().match(/exchange or queue exists with incompatible arguments/g),
    ).toHaveLength(1)

    const { code, problems } = await doctor('rabbitmq,coordinator')
    expect(code).toBe(1)
    expect(problems).toEqual([
      expect.objectContaining({
        Subject: 'rabbitmq',
        Check: 'queue',
        Found: expect.stringMatching(new RegExp(`^${name}: .* is .*, needs `)),
        Mend: expect.stringContaining('Delete the queue'),
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
    expect((await doctor('rabbitmq,coordinator')).problems).toEqual([])
  })

  it('doctor prints one line for each backend that rejects connections', async () => {
    const { code, results } = await doctor('redis,postgres,rabbitmq,provider,demo-api', {
      REDIS_URL: 'redis://127.0.0.1:2',
      DATABASE_URL: 'postgresql://postgres@127.0.0.1:2/x',
      AMQP_URL: 'amqp://127.0.0.1:2',
      DISCOVERY_URL: 'http://127.0.0.1:2/x',
      DEMO_API_URL: 'http://127.0.0.1:2',
    })
    expect([code, results.map(({ Subject }) => Subject)]).toEqual([
      1,
      ['redis', 'postgres', 'rabbitmq', 'provider', 'demo-api'],
    ])
    for (const { Found } of results) expect(Found).toBe('127.0.0.1:2: no process listens there')
  })

  it('doctor reports a wrong password without printing the password', async () => {
    const url = new URL(backend('TEST_AMQP_URL'))
    url.password = 'a-wrong-password'
    const { code, results } = await doctor('rabbitmq', { AMQP_URL: url.href })
    expect([code, results]).toMatchObject([
      1,
      [{ Found: `${url.host}: rejects the user, the password, or the virtual host` }],
    ])
  })

  it('doctor prints one timeout line for each backend that accepts connections but sends nothing', async () => {
    const sockets = new Set<Socket>()
    const unresponsive = createServer((socket) => void sockets.add(socket.on('error', () => {})))
    unresponsive.listen(0, '127.0.0.1')
    await once(unresponsive, 'listening')
    const { port } = unresponsive.address() as { port: number }
    const { code, results } = await doctor('redis,postgres,rabbitmq,provider,coordinator', {
      REDIS_URL: `redis://127.0.0.1:${port}`,
      DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/x`,
      AMQP_URL: `amqp://127.0.0.1:${port}`,
      DISCOVERY_URL: `http://127.0.0.1:${port}/x`,
      COORDINATOR_URL: `http://127.0.0.1:${port}`,
    })
    for (const socket of sockets) socket.destroy()
    unresponsive.close()
    expect(code).toBe(1)
    expect(results.map(({ Subject }) => Subject)).toEqual([
      'redis',
      'postgres',
      'rabbitmq',
      'provider',
      'coordinator',
    ])
    for (const { Found } of results) expect(Found).toContain('does not respond in time')
  })
})
