import type { Redis } from 'ioredis'
import { checkClock } from '../observability/checks/clock.ts'
import {
  checkVersion,
  type CheckResult,
  problem,
  throwOnProblem,
  UnsupportedBackend,
} from '../observability/checks/check-result.ts'
import type { Dependency } from '../observability/health.ts'
import type { ServerInfo } from './connector.ts'
import { NO_CLUSTER } from './reason.ts'

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
