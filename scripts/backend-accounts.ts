// The account of each service at Redis and RabbitMQ: which keys, commands, exchanges and queues it may use. The compose stack
// creates these accounts; docs/kubernetes.md and docs/rabbitmq.md show them for other installations.
import { createHash } from 'node:crypto'

/** Permissions of a Redis user. `*` in a key pattern matches any characters. */
interface RedisAccount {
  readonly keys: readonly string[]
  /** Commands and categories in the syntax of `ACL SETUSER`. */
  readonly commands: readonly string[]
}

/**
 * What every connection needs: set-up, PING, and TIME and INFO for the health check. None of them reads a key. `-@dangerous`
 * takes CLIENT KILL and the like away; INFO is in that category, too.
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
    // Every data command on its own keys, but none that is dangerous: KEYS, FLUSHALL, SORT and the like.
    commands: ['+@read', '+@write', '+@scripting', ...CONNECTION, '+config|get'],
  },
  'accounting-gateway': {
    // Permits, concurrency slots and cool-downs of the two rate limiters.
    keys: ['throttle:*', 'batch:*'],
    // Those of the scripts in services/accounting-gateway/src/adapters/redis/rate-limiter-scripts.ts.
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
      ...CONNECTION,
    ],
  },
  // `integration-host doctor` reads settings of the server, and no key.
  doctor: { keys: [], commands: [...CONNECTION, '+config|get', '+acl|getuser'] },
} as const satisfies Readonly<Record<string, RedisAccount>>
export type RedisAccountName = keyof typeof redisAccounts

/**
 * Returns the rules of `ACL SETUSER` for an account, without its password.
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

/** Returns a line of `redis.conf` that creates the account; the line contains a hash of the password. */
export const redisUser = (name: RedisAccountName, password: string): string =>
  `user ${name} on #${createHash('sha256').update(password).digest('hex')} ${redisRules(name).join(' ')}`

/**
 * Permissions of a RabbitMQ user: names of exchanges and queues, as regular expressions. Binding a queue needs `write` on the
 * queue and `read` on the exchange; a queue with a dead-letter exchange also needs `read` on itself and `write` on the exchange.
 */
interface BrokerAccount {
  readonly configure: readonly string[]
  readonly write: readonly string[]
  readonly read: readonly string[]
}

/** Queues that the coordinator declares and consumes. */
const COORDINATOR_QUEUES = [
  'steps\\..+',
  'integration\\.delay\\..+', // a queue and an exchange of the same name
  'coordinator\\.credentials',
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
      'integration\\.(steps|dead|credentials|transactions|coordinators)',
      'dead\\..+',
      ...COORDINATOR_QUEUES,
    ],
    // It must not publish credential events, so it has no `write` on integration.credentials.
    write: [
      'integration\\.(steps|dead|transactions|coordinators)',
      'dead\\..+',
      ...COORDINATOR_QUEUES,
    ],
    // Dead letters are for operators, so it has no `read` on their queues.
    read: ['integration\\.(steps|dead|credentials|coordinators)', ...COORDINATOR_QUEUES],
  },
} as const satisfies Readonly<Record<string, BrokerAccount>>
export type BrokerAccountName = keyof typeof brokerAccounts

/**
 * Returns the permissions of an account as RabbitMQ expects them: one regular expression each.
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
