import { addAbortListener } from 'node:events'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  checkVersion,
  warning,
  checkClock,
} from '@integration-host/shared/observability/checks'
import {
  checkRedisReplicas,
  checkSentinelDownAfter,
  DEFAULT_MAX_LAG_SECONDS,
  redisReason,
  kindProblems,
  parseInfo,
} from '@integration-host/shared/redis/server-check'
import { nameOf, type Server } from '@integration-host/shared/process/server-list'
import { parseRedisUrl, type RedisAddress } from '@integration-host/shared/redis/address'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { TlsFiles } from '@integration-host/shared/tls/tls-files'
import { DeadlinePassed, reached, unreachable } from './reach.ts'
import { resultsOf } from './results.ts'

const TIMEOUT_MS = 3_000

/**
 * Checks whether the Redis primary at an address stores data durably. The check writes nothing.
 *
 * @param requiredReplicas `REDIS_REPLICAS`; if it is not set, token-service uses the server's `min-replicas-to-write`
 */
export async function examineRedis(
  url: Secret,
  tls: TlsFiles | undefined,
  requiredReplicas: number | undefined,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const address = parseRedisUrl(url.reveal())
  const results: CheckResult[] = []
  let servers: readonly Server[]
  let downAfterMs: number | null = null
  if (address.kind === 'servers') servers = address.servers
  else
    try {
      const { findPrimary } = await import('@integration-host/shared/redis/connector')
      const primary = await findPrimary(address.sentinels, tls)
      servers = [primary]
      ;({ downAfterMs } = primary)
    } catch (error) {
      return [
        problem(
          'connection',
          `no Sentinel names a primary: ${redisReason(error)}`,
          'Check the Sentinels, and the name of the primary in the address (REDIS_URL)',
        ),
      ]
    }
  for (const server of servers) {
    const examined = await examineServer(server, {
      address,
      tls,
      requiredReplicas,
      signal,
      downAfterMs,
    })
    // The address may list several servers. A server that is not the primary is a replica or is being replaced, so only
    // its connection is reported.
    if (examined.isPrimary || servers.length === 1) return [...results, ...examined.results]
    results.push(...examined.results.filter(({ check }) => check === 'connection'))
  }
  return [
    ...results,
    problem('role', 'none of the servers is the primary', 'Wait for the failover, or promote one.'),
  ]
}

interface Deps {
  readonly address: RedisAddress
  readonly tls: TlsFiles | undefined
  readonly requiredReplicas: number | undefined
  /** The `down-after-milliseconds` of the Sentinels; `null` if the address names no Sentinels. */
  readonly downAfterMs: number | null
  readonly signal: AbortSignal
}

async function examineServer(
  server: Server,
  { address, tls, requiredReplicas, downAfterMs, signal }: Deps,
): Promise<{ readonly isPrimary: boolean; readonly results: readonly CheckResult[] }> {
  const host = nameOf(server)
  // The driver is loaded on demand, so that other commands start faster.
  const { Redis } = await import('ioredis')
  const { clientOptions } = await import('@integration-host/shared/redis/connection')
  const redis = new Redis({
    ...clientOptions(address, { next: () => server, tls, timeoutMs: TIMEOUT_MS }),
    connectionName: 'doctor',
    lazyConnect: true,
    commandTimeout: TIMEOUT_MS,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  })
  let failure: unknown
  redis.on('error', (error) => (failure ??= error))
  const stop = (): void => redis.disconnect()
  using _ = addAbortListener(signal, stop)
  try {
    await redis.connect()
    const info = await redis.info()
    const fields = parseInfo(info)
    const kinds = kindProblems(fields)
    if (kinds.length > 0) return { isPrimary: false, results: [reached(host), ...kinds] }
    const requestedAt = Date.now()
    const [seconds, micros] = await redis.time()
    const clock = checkClock({
      remoteAt: Number(seconds) * 1_000 + Number(micros) / 1_000,
      requestedAt,
      respondedAt: Date.now(),
    })
    const setting = async (name: string): Promise<string | undefined> =>
      ((await redis.config('GET', name).catch(() => [])) as string[])[1]
    const minToWrite = Number((await setting('min-replicas-to-write')) ?? 0)
    const replication = {
      info,
      required: requiredReplicas ?? minToWrite,
      minToWrite,
      maxLagSeconds: Number((await setting('min-replicas-max-lag')) ?? DEFAULT_MAX_LAG_SECONDS),
    }
    const replayer = (await redis.call('ACL', 'GETUSER', 'default').catch(() => [])) as unknown[]
    const isPrimary = fields['role'] === 'master'
    const sentinel = downAfterMs === null ? null : checkSentinelDownAfter(replication, downAfterMs)
    return {
      isPrimary,
      results: resultsOf(
        reached(host),
        checkServer(info, await setting('appendfsync')),
        isPrimary && checkRedisReplicas(replication),
        sentinel,
        checkDefaultUser(replayer),
        clock,
      ),
    }
  } catch (error) {
    const reason = signal.aborted ? new DeadlinePassed() : (failure ?? error)
    return { isPrimary: false, results: [unreachable(host, 'REDIS_URL', reason)] }
  } finally {
    redis.disconnect()
  }
}

/**
 * Checks the reply to INFO. `appendfsync` is the value from CONFIG GET, or `undefined` if the user may not run CONFIG
 * GET.
 */
export function checkServer(text: string, appendfsync: string | undefined): readonly CheckResult[] {
  const info = parseInfo(text)
  const role = info['role'] ?? 'unknown'
  return resultsOf(
    checkVersion('redis', info['redis_version'] ?? 'unknown'),
    role !== 'master' &&
      problem('role', role, 'Point REDIS_URL at the primary: writes to a replica are rejected.'),
    checkMemory(info),
    checkPersistence(info, appendfsync),
  )
}

/**
 * Checks whether Redis can replay its append-only file. Redis replays transactions with the permissions of the user
 * `default`, even if this user is disabled, and skips a transaction that these permissions do not allow
 * (redis/redis#14541).
 *
 * @param replayer the reply to `ACL GETUSER default`; empty if the connected user may not run this command
 */
export function checkDefaultUser(replayer: readonly unknown[]): CheckResult {
  const of = (field: string): string => String(replayer[replayer.indexOf(field) + 1])
  if (replayer.length === 0)
    return skipped(
      'default-user',
      'ACL GETUSER is not allowed',
      'Allow +acl|getuser, or check that the user default has all permissions, even if it is disabled.',
    )
  const mayAll = of('commands').split(' ').includes('+@all') && of('keys').split(' ').includes('~*')
  return mayAll
    ? ok('default-user', 'may replay transactions')
    : problem(
        'default-user',
        `may do ${of('commands')} on ${of('keys') || 'no key'}`,
        'Give it all permissions, and disable it if no client is to sign in as it: user default off ~* &* +@all. Otherwise Redis loses transactions when it restarts.',
      )
}

function checkMemory(info: Info): CheckResult[] {
  const policy = info['maxmemory_policy'] ?? 'unknown'
  const used = Number(info['used_memory'])
  const limit = Number(info['maxmemory'])
  const memory = Number(info['total_system_memory'])
  // Without maxmemory, Redis grows until the machine has no memory left, and the kernel kills it.
  const share = used / (limit > 0 ? limit : memory)
  const report = share > 0.95 ? problem : warning
  return resultsOf(
    policy === 'noeviction'
      ? ok('maxmemory-policy', policy)
      : problem(
          'maxmemory-policy',
          policy,
          'Set maxmemory-policy noeviction: a company whose credential is evicted must connect again.',
        ),
    share > 0.8 &&
      report(
        'memory',
        `${Math.round(share * 100)} % of ${limit > 0 ? 'maxmemory' : "the machine's memory"} is used`,
        'Raise maxmemory, or delete data that is not needed: at the limit writes are rejected, and no token is refreshed (docs/runbook.md#redisrejectswrites).',
      ),
  )
}

function checkPersistence(info: Info, appendfsync: string | undefined): CheckResult[] {
  if (info['aof_enabled'] !== '1')
    return [
      problem(
        'appendonly',
        'no',
        'Set appendonly yes: after a restart refreshed tokens are lost, and the previous ones are invalid.',
      ),
    ]
  const isWritten = info['aof_last_write_status'] !== 'err'
  return [
    isWritten
      ? ok('appendonly', 'yes')
      : problem('appendonly', 'its last write failed', 'Check the disk and the log of Redis.'),
    appendfsync === undefined
      ? skipped(
          'appendfsync',
          'CONFIG GET is not allowed',
          'Allow +config|get, or check it on the host.',
        )
      : appendfsync === 'always'
        ? ok('appendfsync', appendfsync)
        : warning(
            'appendfsync',
            appendfsync,
            'Set appendfsync always: otherwise a power failure, or a crash of Redis while the disk is slow, loses up to two seconds of refreshes.',
          ),
  ]
}

type Info = ReturnType<typeof parseInfo>
