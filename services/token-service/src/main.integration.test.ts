/**
 * Tests token-service as an OS process: invalid settings, a start without backends, the memory of an idle process, and
 * shutdown.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { connect } from 'amqplib'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { generateKeyRing } from '@integration-host/shared/secrets/envelope'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import {
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { startRelay } from '@integration-host/shared/test-support/relay'
import {
  CLIENT_ID,
  CLIENT_SECRET,
  startScriptedProvider,
} from '../test-support/scripted-provider.ts'
import { dropKeys, json, SERVICE_KEY } from '../test-support/service-fixture.ts'

const main = fileURLToPath(new URL('main.ts', import.meta.url))
let cleanup: AsyncDisposableStack

beforeEach(() => {
  cleanup = new AsyncDisposableStack()
})
afterEach(() => cleanup.disposeAsync())

const run = (env: Record<string, string>): StartedProcess =>
  cleanup.use(startProcess([main], { env }))

describe('token-service as an OS process', () => {
  it('token-service reports all bad settings in one message without their values, and exits with 1', async () => {
    const child = run({
      PORT: '7217canary',
      CLIENT_SECRET: 'canary,',
      REDIS_URL: 'canary',
      SERVICE_API_KEY: 'canary',
      CREDENTIAL_KEYS: 'k1:canary',
    })
    const { code, stderr: told, stdout } = await child.ended
    expect(code).toBe(1)
    for (const name of [
      'PORT',
      'CLIENT_SECRET',
      'REDIS_URL',
      'AMQP_URL',
      'SERVICE_API_KEY',
      'CREDENTIAL_KEYS',
      'CLIENT_ID',
      'DISCOVERY_URL',
      'REDIRECT',
    ]) {
      expect(told).toMatch(new RegExp(`^  ${name}\\b`, 'm'))
    }
    expect(told + stdout).not.toContain('canary')
  })

  it('token-service reports a port that is in use, and exits with 1', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    cleanup.defer(() => void taken.close())
    await once(taken, 'listening')
    const child = run(settings({ PORT: String((taken.address() as AddressInfo).port) }))
    const { code, stderr } = await child.ended
    expect([code, stderr]).toEqual([1, expect.stringContaining('is taken by another process')])
  })

  const settings = (env: Record<string, string>): Record<string, string> => ({
    SERVICE_API_KEY: SERVICE_KEY,
    DISCOVERY_URL: 'http://127.0.0.1:1/discovery-document',
    CLIENT_ID,
    CLIENT_SECRET,
    REDIRECT: 'http://127.0.0.1:7217/callback',
    CREDENTIAL_KEYS: generateKeyRing().reveal(),
    REDIS_URL: 'redis://127.0.0.1:1',
    AMQP_URL: 'amqp://127.0.0.1:1',
    ...env,
  })

  it('token-service starts without its dependencies, becomes ready when they are available, and exits with 0 on SIGTERM', async () => {
    const provider = cleanup.use(await startScriptedProvider())
    provider.knobs.discoveryStatus = 503
    const redis = cleanup.use(await startRelay(process.env['TEST_REDIS_URL'] ?? '', 6379))
    const rabbitmq = cleanup.use(await startRelay(process.env['TEST_AMQP_URL'] ?? '', 5672))
    redis.away()
    rabbitmq.away()
    const prefix = `test-${randomBytes(5).toString('hex')}`
    cleanup.defer(() => dropKeys(`${prefix}:`))
    cleanup.defer(async () => {
      const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
      const channel = await connection.createChannel()
      await channel.deleteExchange(`${prefix}.integration.credentials`)
      await connection.close()
    })
    const port = await freePort()
    const url = `http://127.0.0.1:${port}`
    const child = run(
      settings({
        PORT: String(port),
        DISCOVERY_URL: provider.discoveryUrl,
        REDIS_URL: redis.url,
        AMQP_URL: rabbitmq.url,
        REDIS_KEY_PREFIX: `${prefix}:`,
        AMQP_PREFIX: `${prefix}.`,
      }),
    )
    const ready = async () => {
      const answer = await fetch(`${url}/health/ready`)
      const { dependencies } = (await answer.json()) as {
        dependencies: Record<string, { status: string }>
      }
      return {
        status: answer.status,
        waiting: Object.keys(dependencies)
          .filter((name) => dependencies[name]?.status !== 'up')
          .toSorted(),
      }
    }
    expect(await eventually(ready)).toEqual({
      status: 503,
      waiting: ['credential-keys', 'provider', 'rabbitmq', 'redis', 'redis-writes'],
    })
    expect((await fetch(`${url}/health/live`)).status).toBe(200)
    const call = (path: string, init: RequestInit = {}) =>
      fetch(url + path, {
        ...init,
        headers: {
          Authorization: `Bearer ${SERVICE_KEY}`,
          ...(init.headers as Record<string, string>),
        },
      })
    const refused = await call('/credentials/ACC-1')
    expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([
      503,
      'store_unavailable',
    ])

    rabbitmq.restore()
    await eventually(async () => expect((await ready()).waiting).not.toContain('rabbitmq'))
    provider.knobs.discoveryStatus = 200
    redis.restore()
    await eventually(async () => expect(await ready()).toEqual({ status: 200, waiting: [] }))
    expect(
      (await call('/callback', json({ RealmID: '1', Code: provider.authorize() }))).status,
    ).toBe(201)

    redis.away()
    await eventually(async () => expect((await ready()).waiting).toContain('redis'))
    redis.restore()
    await eventually(async () => expect(await ready()).toEqual({ status: 200, waiting: [] }))
    expect((await call('/credentials/ACC-1/token')).status).toBe(200)

    expect(await child.stop('SIGTERM')).toBe(0)
    const output = child.output()
    expect(output).toContain('dependency is down')
    expect(output).toContain('service has shut down')
    expect(output).not.toMatch(/at-[0-9a-f]{48}|rt-[0-9a-f]{48}|code-[0-9a-f]{48}/)
  })

  it('an idle token-service uses less than 180 MB of memory', async () => {
    const provider = cleanup.use(await startScriptedProvider())
    const prefix = `test-${randomBytes(5).toString('hex')}`
    cleanup.defer(() => dropKeys(`${prefix}:`))
    const port = await freePort()
    const child = run(
      settings({
        PORT: String(port),
        DISCOVERY_URL: provider.discoveryUrl,
        REDIS_URL: process.env['TEST_REDIS_URL'] ?? '',
        AMQP_URL: process.env['TEST_AMQP_URL'] ?? '',
        REDIS_KEY_PREFIX: `${prefix}:`,
        AMQP_PREFIX: `${prefix}.`,
      }),
    )
    await eventually(async () =>
      expect((await fetch(`http://127.0.0.1:${port}/health/ready`)).status).toBe(200),
    )
    const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
    const residentMb =
      Number(/^process_resident_memory_bytes\{[^}]*\} (\S+)$/m.exec(metrics)?.[1]) / 2 ** 20
    await child.stop('SIGTERM')
    const connection = await connect(process.env['TEST_AMQP_URL'] ?? '')
    const channel = await connection.createChannel()
    await channel.deleteExchange(`${prefix}.integration.credentials`)
    await connection.close()
    // This limit only detects a large increase. bench/footprint.ts measures the memory exactly.
    expect(residentMb).toBeLessThan(180)
  })
})
