/**
 * Tests token-service in two states of Redis: first Redis rejects writes, because it has reached `maxmemory` with the
 * policy `noeviction`, and later Redis accepts writes again. The test has its own Redis server.
 */
import type { HealthReport } from '@integration-host/shared/observability/health'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  startRestartableServer,
  type RestartableServer,
} from '../support/backends/restartable-servers.ts'
import { sandboxClient } from '../support/clients/sandbox.ts'
import { tokenServiceClient } from '../support/clients/token-service.ts'
import { connectCompany, consentInBrowser } from '../support/clients/user-actions.ts'
import { startSystem, type System } from '../support/system.ts'

let system: System
let server: RestartableServer
let redis: Redis

beforeAll(async () => {
  server = await startRestartableServer('redis')
  redis = new Redis(server.url)
  system = await startSystem(['sandbox-provider'])
  system.start('token-service', { REDIS_URL: server.url })
  await system.ready('token-service')
})
afterAll(async () => {
  redis.disconnect()
  await system[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

/**
 * Sets the memory limit of Redis below its current memory, so that Redis rejects each command that needs more
 * memory.
 */
async function fill(): Promise<void> {
  await redis.set('filler', 'x'.repeat(1_000_000))
  await redis.config('SET', 'maxmemory-policy', 'noeviction')
  await redis.config('SET', 'maxmemory', '1mb')
  await expect(redis.set('one-more', 'x')).rejects.toThrow('OOM')
}
const makeRoom = () => redis.config('SET', 'maxmemory', '0')

async function readiness(): Promise<{ status: number; writes: unknown }> {
  const response = await fetch(`${system.url('token-service')}/health/ready`)
  const { dependencies } = (await response.json()) as HealthReport
  return { status: response.status, writes: dependencies['redis-writes'] }
}

describe('token-service while Redis rejects writes', () => {
  it('while Redis is full, token-service reports not ready, but stores a rotation in flight and issues valid tokens', async () => {
    const [connected, later] = ['4620816365101', '4620816365102']
    const sandbox = sandboxClient(system)
    const tokens = tokenServiceClient(system)
    expect((await connectCompany(system, connected)).status).toBe(302)
    const consent = await consentInBrowser(system, later)
    expect(await readiness()).toMatchObject({ status: 200, writes: { status: 'up' } })

    // The provider rotates the refresh token immediately, but delays the response. Redis reaches its memory limit
    // before the response arrives.
    await sandbox.delayNextTokenResponse(3_000)
    const rotation = tokens.refresh(connected, {})
    await eventually(async () => expect((await sandbox.calls(connected)).granted).toBe(1))
    await fill()
    expect(await rotation).toMatchObject({ status: 200, Version: 2 })

    await eventually(async () =>
      expect(await readiness()).toMatchObject({
        status: 503,
        writes: { status: 'down', reason: 'Redis rejects writes: OOM' },
      }),
    )
    const metrics = await (await fetch(`${system.url('token-service')}/metrics`)).text()
    expect(metrics).toMatch(/^dependency_up\{dependency="redis-writes",[^}]*\} 0$/m)
    expect(await tokens.token(connected)).toMatchObject({ status: 200, Version: 2 })
    const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
    expect(started.status).toBe(302)
    expect((await consent.follow()).status).toBe(503)

    await makeRoom()
    await eventually(async () =>
      expect(await readiness()).toMatchObject({ status: 200, writes: { status: 'up' } }),
    )
    expect(await tokens.refresh(connected, {})).toMatchObject({ status: 200, Version: 3 })
    // Redis rejected the write that would have marked the state of the callback as used, so the state is still valid.
    expect((await consent.follow()).headers.get('Location')).toBe(`/connected?name=ACC-${later}`)
  })
})
