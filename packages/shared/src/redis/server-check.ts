import type { Redis } from 'ioredis'
import {
  checkClock,
  checkVersion,
  type CheckResult,
  problem,
  throwOnProblem,
  UnsupportedBackend,
  ok,
  warning,
} from '../observability/checks.ts'
import { type Dependency, reasonOf } from '../observability/health.ts'
import type { ServerInfo } from './connector.ts'
import { tlsFailure } from '../tls/tls-failure.ts'

/**
 * The error if the server is not a primary that accepts writes. The client can try another server, or the same server
 * later.
 */
export class NotWritable extends UnsupportedBackend {}

/**
 * Returns why writes to the server would fail; `null` if the server is a primary that accepts writes, or if the Redis
 * user is not permitted to run INFO.
 */
export function writeProblem(info: ServerInfo): CheckResult | null {
  if (info['role'] !== undefined && info['role'] !== 'master' && info['redis_mode'] !== 'sentinel')
    return problem(
      'role',
      'the server is a replica and rejects writes',
      'REDIS_URL must lead to the primary, list all servers, or name it by Sentinels.',
    )
  // The field min_slaves_good_slaves is the number of good replicas. INFO contains it only if min-replicas-to-write is
  // set, but does not contain the value of that setting. Only the number zero proves that writes are rejected.
  if (info['min_slaves_good_slaves'] === '0')
    return problem(
      'replicas',
      'the primary has too few replicas and rejects writes (min-replicas-to-write)',
      'Check the replicas, and whether another server has become the primary.',
    )
  return null
}

/**
 * Checks the kind, the role, the version and the clock of a Redis server after a connection to it was established.
 *
 * @throws {UnsupportedBackend} if the server is too old, a Sentinel, or a node of a Redis Cluster.
 * @throws {NotWritable} if the server does not accept writes now.
 * @throws the driver's error if the connection is lost during the check.
 */
export async function checkServer(redis: Redis, dependency: Dependency): Promise<void> {
  const info = parseInfo(
    await redis.info().catch((error: unknown) => {
      // An ACL user without the command category @dangerous is not permitted to run INFO. The service uses no other
      // command of this category, so the server is accepted without the checks.
      if (error instanceof Error && error.message.startsWith('NOPERM')) return ''
      throw error
    }),
  )
  const version = info['redis_version']
  throwOnProblem([...kindProblems(info), ...(version ? [checkVersion('redis', version)] : [])])
  const requestedAt = Date.now()
  const [seconds, micros] = await redis.time()
  const remoteAt = Number(seconds) * 1_000 + Number(micros) / 1_000
  dependency.logCheck(checkClock({ remoteAt, requestedAt, respondedAt: Date.now() }))
  const unwritable = writeProblem(info)
  if (unwritable !== null) throw new NotWritable(unwritable)
}

/** Returns a problem if the reply to INFO is from a Sentinel or from a node of a Redis Cluster. */
export function kindProblems(info: ServerInfo): readonly CheckResult[] {
  if (info['redis_mode'] === 'sentinel')
    return [
      problem(
        'kind',
        'the server is a Sentinel',
        'Set REDIS_URL to redis+sentinel://host:26379/name.',
      ),
    ]
  return info['cluster_enabled'] === '1' || info['redis_mode'] === 'cluster'
    ? [problem('kind', NO_CLUSTER, 'See docs/adr/0022-addresses-of-clusters.md.')]
    : []
}

/** Returns the fields of a reply to INFO. */
export const parseInfo = (text: string): ServerInfo =>
  Object.fromEntries(
    text.split(/\r?\n/).flatMap((line) => {
      const at = line.indexOf(':')
      return at > 0 ? [[line.slice(0, at), line.slice(at + 1)]] : []
    }),
  )

/** The error if none of the servers was found to be the primary. The message is safe to log. */
export class NoPrimary extends Error {
  override readonly name = 'NoPrimary'
}

const NO_CLUSTER = 'Redis Cluster is not supported; use Sentinel or a single primary'

/** The meanings of the codes with which Redis begins an error reply. Other codes are reported unchanged. */
const meanings: Readonly<Record<string, string>> = {
  WRONGPASS: 'rejects the user or the password',
  NOAUTH: 'needs a password',
  NOPERM: 'denies this user a needed permission',
  DENIED: 'accepts connections from its own machine only',
  LOADING: 'is loading its data',
  READONLY: 'is a replica and rejects writes',
  MASTERDOWN: 'is a replica that lost its primary',
  NOREPLICAS: 'is a primary with too few replicas and rejects writes',
  MOVED: NO_CLUSTER,
  ASK: NO_CLUSTER,
  CROSSSLOT: NO_CLUSTER,
  CLUSTERDOWN: NO_CLUSTER,
}

/** Returns the part of a Redis error, or of a connection error, that is safe to log. */
export function redisReason(error: unknown): string {
  if (error instanceof NoPrimary || error instanceof UnsupportedBackend) return error.message
  const failure = tlsFailure(error)
  if (failure !== null) return failure.reason
  const message = error instanceof Error ? error.message : ''
  if (message.startsWith('ERR No such master')) return 'knows no primary of this name'
  if (/^(Socket timeout|Command timed out)/.test(message)) return 'does not respond'
  if (message === 'Connection is closed.') return 'connection closed'
  if (/^ERR unknown command .?sentinel/i.test(message)) return 'is not a Sentinel'
  const reason = reasonOf(error)
  return Object.hasOwn(meanings, reason) ? (meanings[reason] ?? reason) : reason
}

/** What a Redis primary reports about its replicas. */
export interface RedisReplication {
  /** The reply to `INFO replication`, or the reply to `INFO`, which contains the same lines. */
  readonly info: string
  /** How many replicas must have received a write before the write counts as acknowledged (`REDIS_REPLICAS`). */
  readonly required: number
  /** The server's `min-replicas-to-write`; 0 if it is not known. */
  readonly minToWrite: number
  /** The server's `min-replicas-max-lag` in seconds: a replica with a larger lag is not counted. */
  readonly maxLagSeconds: number
}

/** The default of Redis for `min-replicas-max-lag`, in seconds. */
export const DEFAULT_MAX_LAG_SECONDS = 10

const CHECK = 'replicas'

/**
 * Checks whether enough replicas are connected, and whether writes wait for these replicas. As in Redis, a replica
 * counts if its state is `online` and its lag is at most `maxLagSeconds`.
 */
export function checkRedisReplicas(replication: RedisReplication): CheckResult {
  const { info, required, minToWrite, maxLagSeconds } = replication
  const replicas = [...info.matchAll(/^slave\d+:(.*?)\r?$/gm)].map(([, fields = '']) =>
    parseReplica(fields),
  )
  const good = replicas.filter(
    ({ isOnline, lagSeconds }) => isOnline && lagSeconds <= maxLagSeconds,
  )
  const needed = Math.max(required, minToWrite)
  const behind = replicas.length - good.length
  const found = `${good.length} connected${behind > 0 ? `, and ${behind} more than ${maxLagSeconds} s behind or not in sync` : ''}`
  if (good.length < needed)
    return problem(
      CHECK,
      `${found}; ${needed} needed`,
      'Start the missing replicas: until then no credential is refreshed and no company can connect.',
    )
  if (required === 0)
    return replicas.length === 0
      ? ok(CHECK, 'none')
      : problem(
          CHECK,
          `${found}; REDIS_REPLICAS is 0, so no write waits for one`,
          'Set REDIS_REPLICAS=1 for token-service: otherwise a failover loses rotated tokens, and these companies must connect again (docs/clusters.md).',
        )
  return good.length === needed
    ? warning(
        CHECK,
        `${found}; all of them needed`,
        'Add a replica: when one of them stops, no credential is refreshed.',
      )
    : ok(CHECK, `${found}; ${required} must have each write`)
}

/** Parses the fields of a line such as `slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=1`. */
function parseReplica(fields: string): { readonly isOnline: boolean; readonly lagSeconds: number } {
  const values = new Map(
    fields.split(',').map((field) => field.split('=', 2) as [string, string | undefined]),
  )
  return { isOnline: values.get('state') === 'online', lagSeconds: Number(values.get('lag') ?? 0) }
}

/**
 * Compares two times: the time after which Sentinel replaces a primary, and the time for which an isolated primary
 * still accepts writes. Returns `null` if a primary accepts writes even without a replica, because an isolated primary
 * then accepts writes for an unlimited time.
 */
export function checkSentinelDownAfter(
  { minToWrite, maxLagSeconds }: Pick<RedisReplication, 'minToWrite' | 'maxLagSeconds'>,
  downAfterMs: number,
): CheckResult | null {
  if (minToWrite === 0) return null
  const check = 'min-replicas-max-lag'
  const found = `${maxLagSeconds} s, and Sentinel replaces a primary after ${downAfterMs / 1_000} s`
  return maxLagSeconds * 1_000 < downAfterMs
    ? ok(check, found)
    : warning(
        check,
        found,
        "Set min-replicas-max-lag below Sentinel's down-after-milliseconds, such as 2 and 5000: until the lag has passed, a primary without replicas accepts writes that are lost.",
      )
}
