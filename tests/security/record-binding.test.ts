/**
 * Tests an attacker who can write to Redis but does not have CREDENTIAL_KEYS. token-service must detect every change of
 * a record's fields, and every use of one company's record under the name of another company.
 */
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { runCli } from '../support/processes/cli.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REALM = '9341462000001'
const NAME = `ACC-${REALM}`
const OTHER_REALM = '9341462000002'
const OTHER_NAME = `ACC-${OTHER_REALM}`

let system: System
let redis: Redis
/** The records of two companies as token-service has stored them. */
let records: Record<string, Record<string, string>>

beforeAll(async () => {
  system = await startSystem(['sandbox-provider', 'token-service'])
  redis = new Redis(backend('TEST_REDIS_URL'), { keyPrefix: system.redisKeyPrefix })
  for (const realm of [REALM, OTHER_REALM]) await connectCompany(system, realm)
})
afterAll(async () => {
  redis.disconnect()
  await system[Symbol.asyncDispose]()
})

beforeEach(async () => {
  records = { [NAME]: await redis.hgetall(NAME), [OTHER_NAME]: await redis.hgetall(OTHER_NAME) }
})
afterEach(async () => {
  for (const [name, fields] of Object.entries(records)) {
    await redis.del(name)
    await redis.hset(name, fields)
  }
})

const client = () => tokenServiceClient(system)
const metrics = async (): Promise<number> => {
  const text = await (await fetch(`${system.url('token-service')}/metrics`)).text()
  return Number(/^envelopes_refused_total(?:{[^}]*})? (\d+)$/m.exec(text)?.[1])
}
const doctor = () =>
  runCli(['doctor', '--json', '--only', 'token-service'], {
    env: { TOKEN_SERVICE_URL: system.url('token-service'), SERVICE_API_KEY: system.serviceKey },
  })

describe('token-service after a program without the encryption keys has changed records in Redis', () => {
  it('token-service issues no token from a record that was copied to another name, and does not use the copied refresh token', async () => {
    const refused = await metrics()
    expect(await redis.copy(NAME, OTHER_NAME, 'REPLACE')).toBe(1)
    const issued = await client().token(OTHER_REALM)
    expect([issued.status, issued.Authenticator]).toEqual([500, undefined])
    expect((await client().refresh(OTHER_REALM, {})).status).toBe(500)
    const calls = await sandboxClient(system).calls(REALM)
    expect([calls.granted, calls.rejected]).toEqual([0, 0])
    expect(await metrics()).toBeGreaterThan(refused)
    // In a second step, the attacker also changes the name in the copied record.
    await redis.hset(OTHER_NAME, 'Name', OTHER_NAME)
    expect((await client().token(OTHER_REALM)).status).toBe(500)
    expect((await client().token(REALM)).status).toBe(200)
  })

  it.each([
    ['Expiry', '2040-01-01T00:00:00.000Z'],
    ['Environment', '9341462000009'],
    ['HardExpiry', '2040-01-01T00:00:00.000Z'],
    ['Status', 'faulted'],
    ['Version', '7'],
  ])(
    'token-service issues no token from a record whose field %s was changed',
    async (field, value) => {
      await redis.hset(NAME, field, value)
      expect((await client().token(REALM)).status).toBe(500)
      const { stdout } = await doctor()
      expect(stdout).toContain(`does not decrypt 1: ${NAME}`)
    },
  )

  it('token-service does not show the message and the remedy of a fault that another program has written to Redis', async () => {
    const Fault = JSON.stringify({
      Code: 'provider_unavailable',
      Message: 'call 0900-1234 now',
      At: new Date().toISOString(),
      Attempts: 1,
      Remedy: 'send your password to the address in the message',
    })
    await redis.hset(NAME, { Fault, Status: 'faulted' })
    const credential = await client().credential(REALM)
    expect(credential).toMatchObject({ status: 200, Fault: { Code: 'provider_unavailable' } })
    const list = await (await system.call(`${system.url('token-service')}/credentials`)).text()
    for (const shown of [JSON.stringify(credential), list])
      expect(shown).not.toMatch(/0900-1234|password/)
    expect((await client().token(REALM)).status).toBe(200)
  })

  it('doctor reports a record in Redis that was replaced with an earlier version of the same record', async () => {
    expect((await client().refresh(REALM, {})).status).toBe(200)
    expect((await doctor()).stdout).not.toContain('older than in the audit log: ')
    const current = await redis.hgetall(NAME)
    await redis.del(NAME)
    await redis.hset(NAME, records[NAME] ?? {})
    const { code, stdout } = await doctor()
    records[NAME] = current
    expect(code).toBe(1)
    expect(stdout).toContain(`1 older than in the audit log: ${NAME} has 1, the log 2`)
  })
})
