// The cost of the accounting gateway compared with other proxies that inject a bearer token by realm: nginx with a
// static map, and proxies written with Node's proxy packages. Prints two tables. Needs nginx; uses wrk if it is installed.
//   npm run bench -- proxy [--rounds 12] [--seconds 2] [--paced-rounds 5] [--only accounting-gateway,fast-proxy]
// `--profile <folder>` keeps a CPU profile of the gateway.
import { parseArgs } from 'node:util'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { startNginxProxy, startUpstream } from './proxy/nginx.ts'
import { startTokens } from './proxy/token-service.ts'
import { tokenOf } from './proxy/peer.ts'
import { isWrkInstalled, wrk } from './proxy/wrk.ts'
import { type LoadResult, saturate, steady, type Target } from './support/load.ts'
import { startEntry } from './support/peer-process.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { compare, measureRounds, type Side } from './support/rounds.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '12' },
    seconds: { type: 'string', default: '2' },
    'paced-rounds': { type: 'string', default: '5' },
    only: { type: 'string' },
    profile: { type: 'string' },
  },
})
const ROUNDS = Number(values.rounds)
const SECONDS = Number(values.seconds)
const PACED_ROUNDS = Number(values['paced-rounds'])
const CONNECTIONS = 64
const REALMS = 100
const PACE = 500
// After the first round V8 has not yet optimized the hot functions of any of them.
const WARM_UP_ROUNDS = 3

await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const { url: redisUrl } = opened.use(await startPrivateRedis({ appendOnly: false }))
const system = opened.use(await startSystem([]))
const upstream = opened.use(await startUpstream())
const tokens = opened.use(await startTokens())
const realms = Array.from({ length: REALMS }, (_, n) => `r${n}`)
const peer = (name: string) =>
  startEntry(new URL(`proxy/${name}.ts`, import.meta.url), { upstream: upstream.url, realms })

// Limits are on but far above the load, so that each call is counted and none is rejected. The gateway logs
// no line per call, because the other proxies log none either.
const gateway = await system.replica('accounting-gateway', {
  LOG_LEVEL: 'warn',
  REDIS_URL: redisUrl,
  ACCOUNTING_URL: upstream.url,
  TOKEN_SERVICE_URL: tokens.url,
  PROVIDER_PROFILE: 'unlimited',
  ...(values.profile !== undefined && {
    NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${values.profile}`,
  }),
})
opened.defer(async () => void (await gateway.stop('SIGTERM'))) // it writes its profile on exit
const all = {
  nginx: opened.use(await startNginxProxy(upstream.url, realms)),
  'accounting-gateway': gateway,
  'fast-proxy': opened.use(await peer('fast-proxy')),
  '@fastify/http-proxy': opened.use(await peer('fastify-http-proxy')),
  'http-proxy-3': opened.use(await peer('http-proxy-3')),
  'hono proxy helper': opened.use(await peer('hono-proxy')),
} satisfies Record<string, Side>
type Name = keyof typeof all
const only = values.only?.split(',')
const sides = Object.fromEntries(
  Object.entries<Side>(all).filter(([name]) => only?.includes(name) ?? true),
) as Record<Name, Side>
const names = Object.keys(sides) as Name[]
const [base = 'nginx'] = names

const targetOf = (name: Name): Target => ({
  origin: sides[name].url,
  method: 'GET',
  path: (n) => `/v3/company/${realms[n % REALMS]}/query?query=select%20*%20from%20CompanyInfo`,
  headers: { Authorization: `Bearer ${system.serviceKey}` },
})

const program = isWrkInstalled() ? 'wrk' : 'a Node client, which costs more than most of these'
const load = (name: Name): Promise<LoadResult> =>
  isWrkInstalled()
    ? wrk(sides[name].url, {
        connections: CONNECTIONS,
        seconds: SECONDS,
        realms: REALMS,
        key: system.serviceKey,
      })
    : saturate(targetOf(name), { connections: CONNECTIONS, seconds: SECONDS })

const saturated = await measureRounds(sides, { warmUp: WARM_UP_ROUNDS, rounds: ROUNDS }, load)
console.log(
  `\n${CONNECTIONS} connections of ${program}, medians of ${ROUNDS} rounds of ${SECONDS} s`,
)
console.table(compare(saturated, names, base))

// One realm, so that the same headers are valid for the upstream without a proxy.
const direct = { url: upstream.url, pid: upstream.pid }
const pacedSides = { direct, ...sides }
type PacedName = keyof typeof pacedSides
const [first = ''] = realms
const pacedTarget = (name: PacedName): Target => ({
  origin: pacedSides[name].url,
  method: 'GET',
  path: () => `/v3/company/${first}/query?query=select%20*%20from%20CompanyInfo`,
  headers: {
    Authorization: `Bearer ${name === 'direct' ? tokenOf(first) : system.serviceKey}`,
  },
})
const paced = await measureRounds(pacedSides, { warmUp: 0, rounds: PACED_ROUNDS }, (name) =>
  steady(pacedTarget(name), { perSecond: PACE, seconds: SECONDS }),
)
console.log(
  `${PACE} requests a second, sent at their scheduled times; above: difference to the direct connection`,
)
const row = (name: PacedName) => ({
  'p50 ms': median(paced.map((round) => round[name].p50Ms)).toFixed(2),
  'p99 ms': median(paced.map((round) => round[name].p99Ms)).toFixed(2),
  'p50 above': median(paced.map((round) => round[name].p50Ms - round.direct.p50Ms)).toFixed(2),
  'p99 above': median(paced.map((round) => round[name].p99Ms - round.direct.p99Ms)).toFixed(2),
})
console.table(
  Object.fromEntries((Object.keys(pacedSides) as PacedName[]).map((name) => [name, row(name)])),
)
