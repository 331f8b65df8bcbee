// Measures how many provider calls and Redis round trips a refresh by token-service needs, and the rate of refreshes.
// The rate is compared with the rate of two OAuth libraries that store tokens with a Redis SET. token-service and the
// libraries refresh at the same sandbox provider. Prints two tables.
//   npm run bench -- refresh               token-service and two OAuth libraries
//   npm run bench -- refresh --replica     token-service without and with REDIS_REPLICAS=1, on a Redis with a replica
import { parseArgs } from 'node:util'
import { startCustody } from './support/custody.ts'
import { inTurn, saturate, type Target } from './support/load.ts'
import { connectPeers, startPeer } from './support/peer-process.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { logCommands } from './support/redis-commands.ts'
import { compare, measureRounds, type Side } from './support/rounds.ts'

const { values } = parseArgs({ options: { replica: { type: 'boolean', default: false } } })
const REALMS = 200
const COUNTED = 200
const IN_FLIGHT = 32
const WARM_UP_ROUNDS = 3
const ROUNDS = 10
const ROUND_SECONDS = 1
/** Matches the keys that only one realm uses: a credential, its lease, or the record of a compared library. */
const REALM_KEY = /^([a-z-]+:)?ACC-\d+$/

await using opened = new AsyncDisposableStack()
const { url: redisUrl, redis } = opened.use(await startPrivateRedis({ appendOnly: true }))
if (values.replica) {
  const { redis: replica } = opened.use(await startPrivateRedis({ appendOnly: true }))
  const { hostname, port } = new URL(redisUrl)
  await replica.replicaof(hostname, Number(port))
}
const custody = opened.use(await startCustody(redisUrl))
const tokenService = custody.startTokenService({ REDIS_REPLICAS: '0' })
await custody.system.ready('token-service')
// The provider rotates the refresh token at every refresh, so each refresh has a new token to store. The previous
// token stays valid for a grace period, because the compared libraries may refresh one credential several times at
// the same moment.
await custody.sandbox('PUT', 'settings', { rotation: 'always', graceSeconds: 86_400 })
const realms = Array.from({ length: REALMS }, (_, n) => `93414539080${String(n).padStart(5, '0')}`)
for (const realm of realms) {
  await custody.connect(realm)
  if (!values.replica) await connectPeers(custody, redis, realm)
}

const settings = { redisUrl, ...custody.client }
const BASE = values.replica ? 'token-service' : 'intuit-oauth + Redis SET'
const sides: Readonly<Record<string, Side>> = values.replica
  ? {
      'token-service': tokenService,
      'token-service, REDIS_REPLICAS=1': await custody.startReplica({ REDIS_REPLICAS: '1' }),
    }
  : {
      'token-service': tokenService,
      'intuit-oauth + Redis SET': opened.use(await startPeer('intuit-oauth', settings)),
      'openid-client + Redis SET': opened.use(await startPeer('openid-client', settings)),
    }
const names = Object.keys(sides)
const targetOf = (name: string): Target => ({
  origin: sides[name]?.url ?? '',
  method: 'POST',
  path: (n) => `/credentials/ACC-${realms[n % REALMS]}/refresh`,
  headers: {
    Authorization: `Bearer ${custody.system.serviceKey}`,
    'Content-Type': 'application/json',
  },
  body: '{}',
})
const refreshesAtProvider = async (): Promise<number> =>
  ((await custody.sandbox('GET', 'counters')) as { refreshes: number }).refreshes

async function cost(load: () => Promise<number>): Promise<Record<string, string>> {
  const callsBefore = await refreshesAtProvider()
  const log = await logCommands(redisUrl)
  const refreshes = await load()
  const commands = await log.end()
  const ofRealm = commands.filter((args) => args.some((arg) => REALM_KEY.test(arg))).length
  const each = (count: number): string => (count / refreshes).toFixed(2)
  return {
    'provider calls': each((await refreshesAtProvider()) - callsBefore),
    'Redis round trips': each(ofRealm),
    'Redis, in the background': each(commands.length - ofRealm),
  }
}
const costs: Record<string, Record<string, string>> = {}
for (const name of names) {
  costs[`${name}, one at a time`] = await cost(async () => {
    await inTurn(targetOf(name), COUNTED)
    return COUNTED
  })
  costs[`${name}, ${IN_FLIGHT} in flight`] = await cost(async () => {
    const load = { connections: IN_FLIGHT, seconds: ROUND_SECONDS }
    return (await saturate(targetOf(name), load)).requests
  })
}
console.log('\nPer refresh')
console.table(costs)

const rounds = await measureRounds(
  sides,
  { warmUp: WARM_UP_ROUNDS, rounds: ROUNDS },
  async (name) => {
    const before = await refreshesAtProvider()
    const load = { connections: IN_FLIGHT, seconds: ROUND_SECONDS }
    const result = await saturate(targetOf(name), load)
    const calls = (await refreshesAtProvider()) - before
    if (calls !== result.requests) {
      throw new Error(`${name}: ${calls} provider calls for ${result.requests} refreshes`)
    }
    return result
  },
)
console.log(`${IN_FLIGHT} refreshes in flight, medians of ${ROUNDS} rounds`)
console.table(compare(rounds, names, BASE))
