import { type CheckResult, ok, problem, warning } from './check-result.ts'

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
