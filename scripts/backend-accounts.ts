// Defines the account of each service at Redis and RabbitMQ: the keys, commands, exchanges and queues that the service
// may use. The compose stack creates these accounts; docs/kubernetes.md and docs/rabbitmq.md show them for other
// installations.
import { createHash } from 'node:crypto'

/** Permissions of a Redis user. `*` in a key pattern matches any characters. */
interface RedisAccount {
  readonly keys: readonly string[]
  /** Allowed commands and command categories, in the syntax of `ACL SETUSER`. */
  readonly commands: readonly string[]
}

/**
 * Permissions that every connection needs: for its set-up, for PING, and for TIME and INFO in the health check. None of
 * these commands reads a key. `-@dangerous` removes commands such as CLIENT KILL from `+@connection`. It also removes
 * INFO, which is therefore added again.
 */
const CONNECTION = ['+@connection', '-@dangerous', '+time', '+info']

export const redisAccounts = {
  'token-service': {
    keys: [
      'ACC-*', // credentials
      'credentials:*', // their indexes, outbox, audit log and key check value
      'lease:*',
      'recorded:*', // markers of audit entries that were already recorded
      'authorization:*',
      'exchange:*', // authorization codes that were already exchanged
    ],
    // The account may run all data commands on these keys, except dangerous commands such as KEYS, FLUSHALL and SORT.
    commands: ['+@read', '+@write', '+@scripting', ...CONNECTION, '+config|get'],
  },
  'accounting-gateway': {
    // The keys in which the gateway stores its rate limits (permits, concurrency slots and cool-downs) and the numbers
    // of calls.
    keys: ['throttle:*', 'batch:*', 'usage:*'],
    // The commands in the Lua scripts of services/accounting-gateway/src/adapters/redis/rate-limiter-scripts.ts, and
    // the commands that usage-store.ts in the same folder sends.
    commands: [
      '+eval',
      '+evalsha',
      '+set',
      '+pttl',
      '+pexpire',
      '+hset',
      '+hdel',
      '+hgetall',
      '+zadd',
      '+zrem',
      '+zrange',
      '+zrangebyscore',
      '+zremrangebyscore',
      '+zcount',
      '+zcard',
      '+multi',
      '+exec',
      '+expire',
      '+hincrby',
      '+hmget',
      ...CONNECTION,
    ],
  },
  // `integration-host doctor` reads the settings of the Redis server, but no key.
  doctor: { keys: [], commands: [...CONNECTION, '+config|get', '+acl|getuser'] },
} as const satisfies Readonly<Record<string, RedisAccount>>
export type RedisAccountName = keyof typeof redisAccounts

/**
 * Returns the rules of `ACL SETUSER` for an account, without the account's password.
 *
 * @param prefix the installation's `REDIS_KEY_PREFIX`
 */
export function redisRules(name: RedisAccountName, prefix = ''): readonly string[] {
  const { keys, commands } = redisAccounts[name]
  return [
    'resetkeys',
    'resetchannels',
    ...keys.map((key) => `~${prefix}${key}`),
    '-@all',
    ...commands,
  ]
}

/** Returns a line of `redis.conf` that creates the account. The line contains a hash of the password. */
export const redisUser = (name: RedisAccountName, password: string): string =>
  `user ${name} on #${createHash('sha256').update(password).digest('hex')} ${redisRules(name).join(' ')}`

/**
 * Permissions of a RabbitMQ user, as regular expressions that match names of exchanges and queues. To bind a queue,
 * a user needs `write` on the queue and `read` on the exchange. To declare a queue with a dead-letter exchange, a
 * user also needs `read` on the queue and `write` on the dead-letter exchange.
 */
interface BrokerAccount {
  readonly configure: readonly string[]
  readonly write: readonly string[]
  readonly read: readonly string[]
}

/** The queues that the coordinator declares and from which it consumes. */
const COORDINATOR_QUEUES = [
  'steps\\..+',
  'dead\\..+',
  'start\\..+',
  '(on|changes|entries)\\..+',
  'integration\\.delay\\..+', // a queue and an exchange of the same name
  'coordinator\\.(credentials|erasures|webhooks)',
  'coordinator\\.transactions\\..+', // one for each replica
]

export const brokerAccounts = {
  'token-service': {
    configure: ['integration\\.credentials'],
    write: ['integration\\.credentials'],
    read: [],
  },
  'accounting-gateway': {
    configure: ['integration\\.credentials', 'accounting-gateway\\.credentials\\..+'],
    write: ['accounting-gateway\\.credentials\\..+'],
    read: ['integration\\.credentials', 'accounting-gateway\\.credentials\\..+'],
  },
  coordinator: {
    configure: [
      'integration\\.(steps|dead|start|provider|credentials|transactions|coordinators)',
      ...COORDINATOR_QUEUES,
    ],
    // The gateway must not publish credential events, so its account has no `write` on integration.credentials.
    write: [
      'integration\\.(steps|dead|start|provider|transactions|coordinators)',
      ...COORDINATOR_QUEUES,
    ],
    read: [
      'integration\\.(steps|dead|start|provider|credentials|coordinators)',
      ...COORDINATOR_QUEUES,
    ],
  },
  // webhook-receiver is the only service that accepts requests from the internet without a key. Its account can only
  // publish events. The account can neither read nor bind queues.
  'webhook-receiver': {
    configure: ['integration\\.provider'],
    write: ['integration\\.provider'],
    read: [],
  },
} as const satisfies Readonly<Record<string, BrokerAccount>>
export type BrokerAccountName = keyof typeof brokerAccounts

/**
 * Returns the permissions of an account as RabbitMQ expects them: one regular expression for each permission.
 *
 * @param prefix the installation's `AMQP_PREFIX`
 */
export function brokerPermissions(name: BrokerAccountName, prefix = '') {
  const { configure, write, read } = brokerAccounts[name]
  const escaped = prefix.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  const pattern = (names: readonly string[]): string =>
    names.length === 0 ? '^$' : `^${escaped}(${names.join('|')})$`
  return { configure: pattern(configure), write: pattern(write), read: pattern(read) }
}
