// The cost of issuing a fresh token: token-service compared with a bare handler that does one Redis read, and with
// the two OAuth libraries that users write such a handler with today. Prints two tables.
//   npm run bench -- token-handout [--rounds 12] [--paced-rounds 5]
import { parseArgs } from 'node:util'
import { startCustody } from './support/custody.ts'
import { saturate, steady, type Target } from './support/load.ts'
import { connectPeers, startPeer } from './support/peer-process.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { compare, measureRounds } from './support/rounds.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '12' },
    'paced-rounds': { type: 'string', default: '5' },
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

await using opened = new AsyncDisposableStack()
const { url: redisUrl, redis } = opened.use(await startPrivateRedis({ appendOnly: true }))
const custody = opened.use(await startCustody(redisUrl))
const tokenService = custody.startTokenService()
await custody.system.ready('token-service')
const realms = Array.from({ length: REALMS }, (_, n) => `93414539080${String(n).padStart(5, '0')}`)
for (const realm of realms) {
  await custody.connect(realm)
  await connectPeers(custody, redis, realm)
}
// No token is refreshed here, so the provider is stopped and one process fewer competes for the processors.
await custody.system.service('sandbox-provider').stop('SIGTERM')

const settings = { redisUrl, ...custody.client }
const sides = {
  'bare handler': opened.use(await startPeer('bare-handler', settings)),
  'token-service': tokenService,
  'intuit-oauth + Redis GET': opened.use(await startPeer('intuit-oauth', settings)),
  'openid-client + Redis GET': opened.use(await startPeer('openid-client', settings)),
}
type Name = keyof typeof sides
const names = Object.keys(sides) as Name[]
const targetOf = (name: Name): Target => ({
  origin: sides[name].url,
  method: 'GET',
  path: (n) => `/credentials/ACC-${realms[n % REALMS]}/token`,
  headers: { Authorization: `Bearer ${custody.system.serviceKey}` },
})

const saturated = await measureRounds(sides, { warmUp: WARM_UP_ROUNDS, rounds: ROUNDS }, (name) =>
  saturate(targetOf(name), { connections: CONNECTIONS, seconds: ROUND_SECONDS }),
)
const paced = await measureRounds(sides, { warmUp: 0, rounds: PACED_ROUNDS }, (name) =>
  steady(targetOf(name), { perSecond: PACE, seconds: PACED_SECONDS }),
)

console.log(`\n${CONNECTIONS} requests in flight, medians of ${ROUNDS} rounds`)
console.table(compare(saturated, names, 'bare handler'))
console.log(`${PACE} requests a second, sent at their scheduled times`)
const row = (name: Name) => ({
  'p50 ms': median(paced.map((round) => round[name].p50Ms)).toFixed(1),
  'p99 ms': median(paced.map((round) => round[name].p99Ms)).toFixed(1),
  'p99 ms, best': Math.min(...paced.map((round) => round[name].p99Ms)).toFixed(1),
  'p99 ms, worst': Math.max(...paced.map((round) => round[name].p99Ms)).toFixed(1),
})
console.table(Object.fromEntries(names.map((name) => [name, row(name)])))
