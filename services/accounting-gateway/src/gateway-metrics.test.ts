import { IntegrationError } from '@integration-host/shared/errors'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createGatewayMetrics } from './gateway-metrics.ts'
import type { Permit, RealmLimits } from './realm/throttle.ts'
import type { FakeServer, FakeTokenService } from '../test-support/fake-servers.ts'
import { startGateway, startFixture } from '../test-support/harness.ts'

let opened: AsyncDisposableStack
let upstream: FakeServer
let tokens: FakeTokenService
beforeEach(async () => {
  ;({ opened, upstream, tokens } = await startFixture())
})
afterEach(() => opened.disposeAsync())

const open = async (settings: Readonly<Record<string, string>> = {}) =>
  opened.use(await startGateway(upstream.url, tokens.url, { settings }))
type Proxy = Awaited<ReturnType<typeof open>>
const read = async (proxy: Proxy): Promise<string> => (await fetch(`${proxy.url}/metrics`)).text()
const fetched = async (proxy: Proxy, path: string): Promise<number> => {
  const answer = await proxy.call(path)
  await answer.text()
  return answer.status
}

describe('the request metrics of the gateway', () => {
  it('gateway_requests_total counts calls by status, without a label for the realm', async () => {
    const proxy = await open()
    for (const realm of ['1', '2', '404']) await fetched(proxy, `/v3/company/${realm}/x`)
    const text = await read(proxy)
    expect(text).toContain('gateway_requests_total{status="200",service="accounting-gateway"} 2')
    expect(text).toContain('gateway_requests_total{status="404",service="accounting-gateway"} 1')
    expect(text).not.toContain('realm=')
  })

  it('gateway_requests_total counts calls by status and realm if METRICS_BY_REALM is on', async () => {
    const proxy = await open({ METRICS_BY_REALM: 'on' })
    for (const realm of ['1', '2', '2']) await fetched(proxy, `/v3/company/${realm}/x`)
    expect(await read(proxy)).toContain(
      'gateway_requests_total{status="200",realm="2",service="accounting-gateway"} 2',
    )
  })
})

describe('the summary of the metrics of the gateway', () => {
  it('the summary counts calls by class, and has the times of the calls of the last minute', async () => {
    const clock = { ms: 1_000 }
    const metrics = createMetrics('test')
    const counted = createGatewayMetrics(metrics, {
      byRealm: false,
      budget: 500,
      now: () => clock.ms,
    })
    counted.callCompleted('1', 200, 90_000, 0)
    clock.ms += 60_000
    for (let ms = 100; ms > 0; ms -= 1) counted.callCompleted('1', ms > 98 ? 503 : 204, ms, 0)
    expect((await metrics.summary()).Gateway).toEqual({
      Calls: { '2xx': 99, '5xx': 2 },
      CallTimes: { P50Seconds: 0.051, P95Seconds: 0.096 },
      CoolingDown: 0,
      MeteredCalls: null,
      MonthlyBudget: 500,
    })
    clock.ms += 60_000
    expect((await metrics.summary()).Gateway?.CallTimes).toBeNull()
  })
})

describe('metrics of the rate limits', () => {
  const permit: Permit = { release() {} }
  const waitLimit = () => ({ until: 0, signal: new AbortController().signal })
  function watch(acquire: RealmLimits['acquire']) {
    const clock = { ms: 1_000 }
    const metrics = createMetrics('test')
    const watching = createGatewayMetrics(metrics, {
      byRealm: false,
      budget: null,
      now: () => clock.ms,
    })
    const limits: RealmLimits = { acquire, coolDown() {} }
    const { calls } = watching.measured({ calls: limits, batches: limits })
    return {
      calls,
      clock,
      readMetrics: () => metrics.read(),
      readSummary: () => metrics.summary(),
    }
  }

  it('gateway_throttle_wait_seconds counts only permits for which a call had to wait, and measures these waits', async () => {
    const turn = Promise.withResolvers<Permit>()
    let isFree = true
    const { calls, clock, readMetrics } = watch(() => (isFree ? permit : turn.promise))
    expect(calls.acquire('1', waitLimit)).toBe(permit)
    isFree = false
    const waiting = calls.acquire('1', waitLimit)
    clock.ms += 2_500
    turn.resolve(permit)
    expect(await waiting).toBe(permit)
    const text = await readMetrics()
    expect(text).toContain('gateway_throttle_wait_seconds_sum{service="test"} 2.5\n')
    expect(text).toContain('gateway_throttle_wait_seconds_count{service="test"} 1\n')
  })

  it('gateway_throttled_total counts calls that the throttle rejects, but not waiting calls whose callers disconnect', async () => {
    const { calls, readMetrics } = watch(async (realm) => {
      throw realm === 'busy' ? new IntegrationError('throttled', 'late') : new Error('gone')
    })
    await expect(calls.acquire('busy', waitLimit)).rejects.toThrow('late')
    await expect(calls.acquire('1', waitLimit)).rejects.toThrow('gone')
    expect(await readMetrics()).toContain('gateway_throttled_total{service="test"} 1\n')
  })

  it('gateway_realms_on_hold counts each realm until its cool-down ends', async () => {
    const { calls, clock, readMetrics, readSummary } = watch(() => permit)
    calls.coolDown('1', 1_000)
    calls.coolDown('2', 5_000)
    calls.coolDown('2', 2_000)
    expect(await readMetrics()).toContain('gateway_realms_on_hold{service="test"} 2\n')
    expect((await readSummary()).Gateway?.CoolingDown).toBe(2)
    clock.ms += 3_000
    expect(await readMetrics()).toContain('gateway_realms_on_hold{service="test"} 1\n')
    clock.ms += 2_000
    expect(await readMetrics()).toContain('gateway_realms_on_hold{service="test"} 0\n')
  })
})
