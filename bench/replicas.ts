/**
 * Measures one, two and three gateways, and one, two and three token-services, which share the processors of this
 * machine and a Redis. The same number of connections is divided among the replicas. Prints the calls per second of all
 * replicas together, and the processor time of each call in the replicas and in Redis. Needs nginx and wrk.
 *
 *   npm run bench -- replicas [--rounds 5] [--seconds 2]
 *   npm run bench -- order-process --replicas 1,2,3      the same for coordinators
 */
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { processBehind } from './order-process/ports.ts'
import { startUpstream } from './proxy/nginx.ts'
import { startTokens } from './proxy/token-service.ts'
import { isWrkInstalled, wrk, type WrkLoad } from './proxy/wrk.ts'
import { startCustody } from './support/custody.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { cpuSeconds } from './support/process-usage.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2' },
  },
})
const ROUNDS = Number(values.rounds)
const SECONDS = Number(values.seconds)
const COUNTS = [1, 2, 3]
const CONNECTIONS = 60
const REALMS = 100
/** After one round, V8 has not yet optimized the hot functions of the services. */
const WARM_UP_ROUNDS = 3
/** Load that precedes each measurement, because V8 shrinks the heap of an idle replica. */
const LEAD_SECONDS = 1

interface Replica {
  readonly url: string
  readonly pid: number
}
interface Measured {
  readonly perSecond: number
  readonly p99Ms: number
  readonly cpuMicros: number
  readonly redisMicros: number
}

if (!isWrkInstalled()) throw new Error('this benchmark needs wrk')
await measureGateways()
await measureTokenServices()

async function measureGateways(): Promise<void> {
  await using opened = new AsyncDisposableStack()
  opened.defer(await setupBackends())
  const upstream = opened.use(await startUpstream(1_024))
  const tokens = opened.use(await startTokens())
  const { url: redisUrl } = opened.use(await startPrivateRedis({ appendOnly: false }))
  const system = opened.use(await startSystem([]))
  const replicas: Replica[] = []
  while (replicas.length < Math.max(...COUNTS))
    replicas.push(
      await system.replica('accounting-gateway', {
        LOG_LEVEL: 'warn',
        REDIS_URL: redisUrl,
        ACCOUNTING_URL: upstream.url,
        TOKEN_SERVICE_URL: tokens.url,
        PROVIDER_PROFILE: 'unlimited',
      }),
    )
  const path = '/v3/company/r{realm}/query?query=select%20*%20from%20CompanyInfo'
  const load = { realms: REALMS, request: { method: 'GET', path }, key: system.serviceKey }
  await measure('accounting-gateway, a GET', replicas, load, redisUrl)
}

async function measureTokenServices(): Promise<void> {
  await using opened = new AsyncDisposableStack()
  const { url: redisUrl } = opened.use(await startPrivateRedis({ appendOnly: true }))
  const custody = opened.use(await startCustody(redisUrl))
  const env = { LOG_LEVEL: 'warn' }
  const replicas: Replica[] = [custody.startTokenService(env)]
  await custody.system.ready('token-service')
  const prefix = '9341453000'
  for (let realm = 0; realm < REALMS; realm += 1) await custody.connect(`${prefix}${realm}`)
  while (replicas.length < Math.max(...COUNTS)) replicas.push(await custody.startReplica(env))
  // No token is refreshed in this benchmark, so the provider is stopped.
  await custody.system.service('sandbox-provider').stop('SIGTERM')
  const path = `/credentials/ACC-${prefix}{realm}/token`
  const load = { realms: REALMS, request: { method: 'GET', path }, key: custody.system.serviceKey }
  await measure('token-service, issuing a token', replicas, load, redisUrl)
}

async function measure(
  name: string,
  replicas: readonly Replica[],
  load: Omit<WrkLoad, 'connections' | 'seconds'>,
  redisUrl: string,
): Promise<void> {
  const redisPid = processBehind(redisUrl, 6_379)
  const measured = new Map<number, Measured[]>(COUNTS.map((count) => [count, []]))
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round += 1)
    for (const [n] of COUNTS.entries()) {
      // The order changes with each round, because what one measurement leaves to do could slow down the next one.
      const count = COUNTS[(n + round) % COUNTS.length] ?? 1
      const used = replicas.slice(0, count)
      const loadAll = (seconds: number) =>
        Promise.all(
          used.map(({ url }) => wrk(url, { ...load, connections: CONNECTIONS / count, seconds })),
        )
      await loadAll(LEAD_SECONDS)
      const usedBefore = secondsOf(used)
      const redisBefore = cpuSeconds(redisPid)
      const parts = await loadAll(SECONDS)
      const requests = sum(parts.map((part) => part.requests))
      if (round < WARM_UP_ROUNDS) continue
      measured.get(count)?.push({
        perSecond: sum(parts.map((part) => part.perSecond)),
        p99Ms: Math.max(...parts.map((part) => part.p99Ms)),
        cpuMicros: ((secondsOf(used) - usedBefore) / requests) * 1e6,
        redisMicros: ((cpuSeconds(redisPid) - redisBefore) / requests) * 1e6,
      })
    }
  console.log(`\n${name}: ${CONNECTIONS} connections, medians of ${ROUNDS} rounds of ${SECONDS} s`)
  console.table(
    Object.fromEntries([...measured].map(([count, results]) => [count, rowOf(results)])),
  )

  function rowOf(results: readonly Measured[]) {
    const ratios = results.map(
      ({ perSecond }, round) => perSecond / (measured.get(1)?.[round]?.perSecond ?? Number.NaN),
    )
    return {
      'per second': median(results.map(({ perSecond }) => perSecond)).toFixed(0),
      'rate : one': median(ratios).toFixed(2),
      'p99 ms, slowest': median(results.map(({ p99Ms }) => p99Ms)).toFixed(1),
      'CPU µs each': median(results.map(({ cpuMicros }) => cpuMicros)).toFixed(0),
      'Redis µs each': median(results.map(({ redisMicros }) => redisMicros)).toFixed(0),
    }
  }
}

function secondsOf(replicas: readonly Replica[]): number {
  return sum(replicas.map(({ pid }) => cpuSeconds(pid)))
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0)
}
