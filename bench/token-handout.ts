// Measures the cost of issuing a token that needs no refresh. token-service is compared with a minimal handler that
// reads Redis once, and with the two OAuth libraries with which such handlers are usually written. Prints two tables.
//   npm run bench -- token-handout [--rounds 12] [--paced-rounds 5]
//   npm run bench -- token-handout --against <checkout>     token-service of this checkout and of another checkout
import { parseArgs } from 'node:util'
import { OTHER_CHECKOUT, otherCheckout, THIS_CHECKOUT } from './support/checkout.ts'
import { startCustody } from './support/custody.ts'
import { saturate, steady, type Target } from './support/load.ts'
import { connectPeers, startPeer } from './support/peer-process.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { compare, measureRounds, type Side } from './support/rounds.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '12' },
    'paced-rounds': { type: 'string', default: '5' },
    against: { type: 'string' },
  },
})
const ROUNDS = Number(values.rounds)
const PACED_ROUNDS = Number(values['paced-rounds'])
const REALMS = 100
const CONNECTIONS = 64
const WARM_UP_ROUNDS = 4
const ROUND_SECONDS = 1
const PACE = 1_000
const PACED_SECONDS = 3

const realms = Array.from({ length: REALMS }, (_, n) => `93414539080${String(n).padStart(5, '0')}`)

await using opened = new AsyncDisposableStack()
/** A server that issues tokens, and the service key with which clients call the server. */
type Issuer = Side & { readonly key: string }
const sides: Readonly<Record<string, Issuer>> =
  values.against === undefined
    ? await tokenServiceAndPeers()
    : {
        [THIS_CHECKOUT]: (await tokenService()).issuer,
        [OTHER_CHECKOUT]: (await tokenService(otherCheckout(values.against))).issuer,
      }
const names = Object.keys(sides)
const base = values.against === undefined ? 'bare handler' : OTHER_CHECKOUT
const targetOf = (name: string): Target => ({
  origin: sides[name]?.url ?? '',
  method: 'GET',
  path: (n) => `/credentials/ACC-${realms[n % REALMS]}/token`,
  headers: { Authorization: `Bearer ${sides[name]?.key}` },
})

const saturated = await measureRounds(sides, { warmUp: WARM_UP_ROUNDS, rounds: ROUNDS }, (name) =>
  saturate(targetOf(name), { connections: CONNECTIONS, seconds: ROUND_SECONDS }),
)
const paced = await measureRounds(sides, { warmUp: 0, rounds: PACED_ROUNDS }, (name) =>
  steady(targetOf(name), { perSecond: PACE, seconds: PACED_SECONDS }),
)

console.log(`\n${CONNECTIONS} requests in flight, medians of ${ROUNDS} rounds`)
console.table(compare(saturated, names, base))
console.log(`${PACE} requests a second, sent at their scheduled times`)
const row = (name: string) => ({
  'p50 ms': median(paced.map((round) => round[name]?.p50Ms ?? Number.NaN)).toFixed(1),
  'p99 ms': median(paced.map((round) => round[name]?.p99Ms ?? Number.NaN)).toFixed(1),
  'p99 ms, best': Math.min(...paced.map((round) => round[name]?.p99Ms ?? Number.NaN)).toFixed(1),
  'p99 ms, worst': Math.max(...paced.map((round) => round[name]?.p99Ms ?? Number.NaN)).toFixed(1),
})
console.table(Object.fromEntries(names.map((name) => [name, row(name)])))

/** Starts a token-service with a separate Redis that contains a credential for each realm. */
async function tokenService(checkout?: string) {
  const { url: redisUrl, redis } = opened.use(await startPrivateRedis({ appendOnly: true }))
  const custody = opened.use(await startCustody(redisUrl, checkout))
  const service = custody.startTokenService()
  await custody.system.ready('token-service')
  for (const realm of realms) {
    await custody.connect(realm)
    if (checkout === undefined) await connectPeers(custody, redis, realm)
  }
  // No token is refreshed in this benchmark, so the provider is stopped. One process fewer then competes for the
  // processors.
  await custody.system.service('sandbox-provider').stop('SIGTERM')
  const { serviceKey: key } = custody.system
  return { issuer: { url: service.url, pid: service.pid, key }, redisUrl, custody }
}

async function tokenServiceAndPeers(): Promise<Record<string, Issuer>> {
  const { issuer, redisUrl, custody } = await tokenService()
  const settings = { redisUrl, ...custody.client }
  const peer = async (name: Parameters<typeof startPeer>[0]): Promise<Issuer> => ({
    ...opened.use(await startPeer(name, settings)),
    key: issuer.key,
  })
  return {
    'bare handler': await peer('bare-handler'),
    'token-service': issuer,
    'intuit-oauth + Redis GET': await peer('intuit-oauth'),
    'openid-client + Redis GET': await peer('openid-client'),
  }
}
