// Compares the cost of the accounting gateway with that of other proxies that add the bearer token of a realm to a
// request. The other proxies are nginx with a static map of tokens, and proxies written with Node's proxy packages.
// Prints two tables. Needs nginx; uses wrk if it is installed.
//   npm run bench -- proxy [--rounds 12] [--seconds 2] [--paced-rounds 5] [--only accounting-gateway,fast-proxy]
//   npm run bench -- proxy --against <checkout>     the gateway of this checkout and of another checkout
// `--post 1024`: the clients send POSTs with a body of that many bytes. `--response 65536`: the accounting API responds
// with about that many bytes.
// `--keys 1000`: the gateway of this checkout reads a key file with that many keys, and its clients send one of these
// keys.
// `--profile <folder>` keeps a CPU profile of the gateway.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { digestOf } from '@integration-host/shared/access/key-list'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { startNginxProxy, startUpstream } from './proxy/nginx.ts'
import { startTokens } from './proxy/token-service.ts'
import { tokenOf } from './proxy/peer.ts'
import { isWrkInstalled, wrk } from './proxy/wrk.ts'
import { OTHER_CHECKOUT, otherCheckout, THIS_CHECKOUT } from './support/checkout.ts'
import { type LoadResult, saturate, steady, type Target } from './support/load.ts'
import { startEntry } from './support/peer-process.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { compare, type Measured, measureRounds, type Side } from './support/rounds.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '12' },
    seconds: { type: 'string', default: '2' },
    'paced-rounds': { type: 'string', default: '5' },
    only: { type: 'string' },
    against: { type: 'string' },
    keys: { type: 'string', default: '0' },
    post: { type: 'string' },
    response: { type: 'string', default: '1024' },
    profile: { type: 'string' },
  },
})
const ROUNDS = Number(values.rounds)
const SECONDS = Number(values.seconds)
const PACED_ROUNDS = Number(values['paced-rounds'])
const CONNECTIONS = 64
/** Sends a POST with a body if `--post` is given, otherwise a query without a body. */
const REQUEST: Pick<Target, 'method' | 'body'> & { readonly resource: string } =
  values.post === undefined
    ? { method: 'GET', resource: 'query?query=select%20*%20from%20CompanyInfo' }
    : { method: 'POST', resource: 'invoice', body: 'x'.repeat(Number(values.post)) }
const REALMS = 100
const PACE = 500
// Number of warm-up rounds. After one round, V8 has not yet optimized the hot functions of the proxies.
const WARM_UP_ROUNDS = 3

await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const { url: redisUrl } = opened.use(await startPrivateRedis({ appendOnly: false }))
const upstream = opened.use(await startUpstream(Number(values.response)))
const tokens = opened.use(await startTokens())
const realms = Array.from({ length: REALMS }, (_, n) => `r${n}`)

/** A measured proxy, and the service key that the benchmark's clients send to this proxy. */
type Proxy = Side & { readonly key: string }
const all: Readonly<Record<string, Proxy>> =
  values.against === undefined
    ? await gatewayAndPeers()
    : {
        [THIS_CHECKOUT]: await gateway(),
        [OTHER_CHECKOUT]: await gateway(otherCheckout(values.against)),
      }
const only = values.only?.split(',')
const sides = Object.fromEntries(
  Object.entries(all).filter(([name]) => only?.includes(name) ?? true),
)
const names = Object.keys(sides)
const base = values.against === undefined ? (names[0] ?? 'nginx') : OTHER_CHECKOUT

const targetOf = (name: string): Target => ({
  ...REQUEST,
  origin: sides[name]?.url ?? '',
  path: (n) => `/v3/company/${realms[n % REALMS]}/${REQUEST.resource}`,
  headers: { Authorization: `Bearer ${sides[name]?.key}` },
})

// Load that precedes each measurement, in seconds. While the other proxies are measured, V8 shrinks the heap of an idle
// one, and its first calls are slow. wrk weights a pause by the calls that it delays (coordinated omission), so without
// this load the p99 would be that of the first calls, not that of full load.
const LEAD_SECONDS = 1
const program = isWrkInstalled() ? 'wrk' : 'a Node client, which costs more than most of these'
const load = (name: string, seconds: number): Promise<LoadResult> =>
  isWrkInstalled()
    ? wrk(sides[name]?.url ?? '', {
        connections: CONNECTIONS,
        seconds,
        realms: REALMS,
        request: { ...REQUEST, path: `/v3/company/r{realm}/${REQUEST.resource}` },
        key: sides[name]?.key ?? '',
      })
    : saturate(targetOf(name), { connections: CONNECTIONS, seconds })

const saturated = await measureRounds(
  sides,
  { warmUp: WARM_UP_ROUNDS, rounds: ROUNDS },
  (name) => load(name, SECONDS),
  (name) => load(name, LEAD_SECONDS),
)
console.log(
  `\n${CONNECTIONS} connections of ${program}, medians of ${ROUNDS} rounds of ${SECONDS} s`,
)
console.table(compare(saturated, names, base))

// The benchmark uses only one realm, so that the same headers are also valid for requests sent directly to the
// upstream.
const [firstRealm = ''] = realms
const direct: Proxy = { url: upstream.url, pid: upstream.pid, key: tokenOf(firstRealm) }
const pacedSides: Readonly<Record<string, Proxy>> = { direct, ...sides }
const pacedTarget = (name: string): Target => ({
  ...REQUEST,
  origin: pacedSides[name]?.url ?? '',
  path: () => `/v3/company/${firstRealm}/${REQUEST.resource}`,
  headers: { Authorization: `Bearer ${pacedSides[name]?.key}` },
})
const paced = await measureRounds(pacedSides, { warmUp: 0, rounds: PACED_ROUNDS }, (name) =>
  steady(pacedTarget(name), { perSecond: PACE, seconds: SECONDS }),
)
console.log(
  `${PACE} requests a second, sent at their scheduled times; columns "above": difference to the direct connection`,
)
const row = (name: string) => {
  const middle = (of: (own: Measured, toUpstream: Measured) => number): string =>
    median(
      paced.flatMap(({ [name]: own, direct: toUpstream }) =>
        own && toUpstream ? [of(own, toUpstream)] : [],
      ),
    ).toFixed(2)
  return {
    'p50 ms': middle(({ p50Ms }) => p50Ms),
    'p99 ms': middle(({ p99Ms }) => p99Ms),
    'p50 above': middle((own, toUpstream) => own.p50Ms - toUpstream.p50Ms),
    'p99 above': middle((own, toUpstream) => own.p99Ms - toUpstream.p99Ms),
  }
}
console.table(Object.fromEntries(Object.keys(pacedSides).map((name) => [name, row(name)])))

/** Starts a gateway with a new service key. */
async function gateway(checkout?: string): Promise<Proxy> {
  const keyFile = checkout === undefined && Number(values.keys) > 0 ? await writeKeyFile() : null
  const system = opened.use(await startSystem([], checkout === undefined ? {} : { checkout }))
  // The rate limits are enabled but far above the number of calls. So each call is counted and no call is rejected. The
  // gateway does not log calls, because the other proxies do not log them either.
  const started = await system.replica('accounting-gateway', {
    LOG_LEVEL: 'warn',
    REDIS_URL: redisUrl,
    ACCOUNTING_URL: upstream.url,
    TOKEN_SERVICE_URL: tokens.url,
    PROVIDER_PROFILE: 'unlimited',
    ...(keyFile !== null && { SERVICE_KEYS_FILE: keyFile.path }),
    ...(values.profile !== undefined && {
      NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${values.profile}`,
    }),
  })
  opened.defer(async () => void (await started.stop('SIGTERM'))) // the gateway writes its CPU profile on exit
  return { url: started.url, pid: started.pid, key: keyFile?.key ?? system.serviceKey }
}

/**
 * Writes a key file with as many keys as the option `--keys` says. Returns the path of the file, and one of the keys.
 * This key is valid for all realms whose ids begin with a certain prefix.
 */
async function writeKeyFile(): Promise<{ readonly path: string; readonly key: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-keys-'))
  opened.defer(() => rm(folder, { recursive: true }))
  const keyOf = (n: number): string => `key-${n}-`.padEnd(48, 'k')
  const entries = Array.from({ length: Number(values.keys) }, (_, n) => ({
    id: `application-${n}`,
    sha256: digestOf(keyOf(n)),
    scopes: ['gateway:read', 'gateway:write'],
    realms: ['r*'],
  }))
  const path = join(folder, 'keys.json')
  await writeFile(path, JSON.stringify(entries))
  return { path, key: keyOf(Math.floor(entries.length / 2)) }
}

async function gatewayAndPeers(): Promise<Record<string, Proxy>> {
  const ours = await gateway()
  const { key } = ours
  const peer = async (name: string): Promise<Proxy> => ({
    ...opened.use(
      await startEntry(new URL(`proxy/${name}.ts`, import.meta.url), {
        upstream: upstream.url,
        realms,
      }),
    ),
    key,
  })
  return {
    nginx: { ...opened.use(await startNginxProxy(upstream.url, realms)), key },
    'accounting-gateway': ours,
    'fast-proxy': await peer('fast-proxy'),
    '@fastify/http-proxy': await peer('fastify-http-proxy'),
    'http-proxy-3': await peer('http-proxy-3'),
    'hono proxy helper': await peer('hono-proxy'),
  }
}
