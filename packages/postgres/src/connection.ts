import { setTimeout as delay } from 'node:timers/promises'
import {
  checkClock,
  UnsupportedBackend,
  throwOnProblem,
  checkVersion,
  ok,
  warning,
} from '@integration-host/shared/observability/checks'
import { checkPostgresStandbys, readPostgresReplication, checkPooling } from './checks.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Dependency } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createSemaphore } from '@integration-host/shared/process/limits'
import type { Secret } from '@integration-host/shared/secrets/secret'
import postgres from 'postgres'
import { parsePostgresUrl, type PostgresAddress, type TlsPaths } from './address.ts'
import { createClient } from './client.ts'
import { type MonitorDeps, startMonitor } from './monitor.ts'
import { postgresReason } from './reason.ts'
import { createServerSockets, type ServerSockets } from './server-sockets.ts'

export interface PostgresOptions {
  /** The application name that `pg_stat_activity` shows. */
  readonly name: string
  readonly dependency: Dependency
  readonly logger: Logger
  /** The address of the connection for LISTEN, if it differs from the address for statements. */
  readonly listenUrl?: Secret | undefined
  /** The settings `DATABASE_CA_FILE`, `DATABASE_CERT_FILE` and `DATABASE_KEY_FILE`. */
  readonly tls?: TlsPaths
  /**
   * The time limit of a statement in milliseconds. A connection that stays unresponsive for another second is closed,
   * except while the server is still executing the statement. The exception exists because a commit that waits for a
   * synchronous standby has no time limit.
   */
  readonly statementTimeoutMs?: number
  /** PostgreSQL settings for each session. Settings in the URL take precedence. */
  readonly session?: Readonly<Record<string, string>>
  /** Applies the migrations before any other statement runs. Called again if it fails. */
  readonly migrate?: (sql: postgres.Sql) => Promise<void>
}

/** The only access to the database. A call fails with `store_unavailable` instead of waiting for the database. */
export interface PostgresConnection extends AsyncDisposable {
  readonly run: <Result>(work: (sql: postgres.Sql) => Promise<Result>) => Promise<Result>
  /**
   * Calls `onNotice` for each notification on a channel. Also calls it after each reconnect, because PostgreSQL does
   * not repeat notifications that were sent while the connection was down.
   */
  readonly listen: (channel: string, onNotice: () => void) => void
}

const CONNECTIONS = 10
/** The maximum number of connections: those of the pool, one for the migrations, and one for the monitor. */
const MAX_SOCKETS = CONNECTIONS + 2
const CHECK_MS = 1_000
const STATEMENT_TIMEOUT_MS = 10_000
/**
 * The timeout of the monitor's queries. It is shorter than that of other statements, because these queries read nothing
 * from disk.
 */
const MONITOR_TIMEOUT_MS = 3_000
const LISTEN_CHECK = 'notifications'
const NO_STANDBY = 'no synchronous standby acknowledges commits'

/** Connects to PostgreSQL in the background, and applies the migrations before any other statement runs. */
export function connectPostgres(url: Secret, options: PostgresOptions): PostgresConnection {
  const { dependency, logger, name, statementTimeoutMs = STATEMENT_TIMEOUT_MS } = options
  const { listenUrl, tls = {}, migrate = async () => {} } = options
  const shutdown = new AbortController()
  let isMigrated = false
  let isPooled = false
  let isPoolingTransactions = false
  const responseTimeoutMs = statementTimeoutMs + 1_000
  const session = { statement_timeout: String(statementTimeoutMs), ...options.session }
  const open = (address: PostgresAddress): { address: PostgresAddress; sockets: ServerSockets } => {
    const sockets = createServerSockets(address, {
      tls,
      session,
      limit: MAX_SOCKETS,
      onPooled(isShared) {
        isPooled = true
        isPoolingTransactions ||= isShared
        // A pooler that shares server connections may execute each statement of a session in another server process,
        // which lacks the prepared statements of the session. A `rollback` that failed for this reason would leave the
        // database transaction open and block a server connection. Therefore no statement is prepared.
        if (isShared) sql.options.prepare = false
      },
    })
    return { address, sockets }
  }
  const database = open(parsePostgresUrl(url.reveal()))
  const listenDatabase =
    listenUrl === undefined ? database : open(parsePostgresUrl(listenUrl.reveal()))

  const sql = createClient(database, name, {
    max: CONNECTIONS,
    max_lifetime: 1_800,
    answer_timeout: responseTimeoutMs / 1_000,
  })
  // Migrations have their own client without a response timeout, because a migration may take longer than any other
  // statement.
  const migrating = createClient(database, name, { max: 1, idle_timeout: 1, prepare: false })
  const monitorOf = (
    target: typeof database,
    rest: Pick<MonitorDeps, 'inspect' | 'onBlocked' | 'onFailure'>,
  ) =>
    startMonitor({
      connect: (events) =>
        createClient(target, name, {
          ...events,
          unresponsive: 'release',
          max: 1,
          max_lifetime: null,
          answer_timeout: MONITOR_TIMEOUT_MS / 1_000,
          prepare: false,
        }),
      sockets: target.sockets,
      needsWrites: target.address.needsWrites,
      signal: shutdown.signal,
      ...rest,
    })
  const monitor = monitorOf(database, {
    async inspect(own) {
      dependency.logCheck(checkPostgresStandbys(await readPostgresReplication(own)))
      if (isPoolingTransactions)
        dependency.logCheck(await checkPooling(own, session, listenUrl !== undefined))
    },
    onBlocked: () => dependency.down(NO_STANDBY),
    onFailure: (error) => logger.debug({ err: error }, 'check of the PostgreSQL server failed'),
  })
  const listener =
    listenUrl === undefined
      ? monitor
      : monitorOf(listenDatabase, {
          inspect: async () => dependency.logCheck(ok(LISTEN_CHECK, 'connected')),
          onBlocked: () => {},
          onFailure: (error) =>
            dependency.logCheck(
              warning(LISTEN_CHECK, postgresReason(error), 'Check DATABASE_LISTEN_URL.'),
            ),
        })
  const reportDown = (error: unknown): void =>
    dependency.down(monitor.isBlocked ? NO_STANDBY : postgresReason(error))

  /**
   * The maximum number of concurrent statements. If there were more, the driver would send further statements on a busy
   * connection, and PgBouncer loses the description of such a statement. The limit is one below the number of
   * connections, so that the check of the pool always finds a free connection.
   */
  const unpipelined = createSemaphore(CONNECTIONS - 1)

  // This timeout also bounds the time for which a statement waits for a free connection, because the driver does not
  // limit that time.
  const within = <Result>(work: Promise<Result>): Promise<Result> =>
    withTimeout(work, responseTimeoutMs)

  const watch = async (): Promise<void> => {
    while (!shutdown.signal.aborted) {
      try {
        if (!isMigrated) {
          await examine(sql, dependency)
          await migrate(migrating)
        }
        isMigrated = true
        await within(sql`select 1`.simple())
        if (!monitor.isBlocked) dependency.up()
      } catch (error) {
        reportDown(error)
        if (!isMigrated && !(error instanceof UnsupportedBackend))
          logger.debug({ err: error }, 'PostgreSQL schema could not be migrated yet')
      }
      await delay(CHECK_MS, null, { signal: shutdown.signal }).catch(() => {})
    }
  }
  const watching = watch()

  return {
    async run(work) {
      // While commits are blocked, further statements are rejected. Otherwise they would also wait, and would run only
      // after their callers have timed out.
      if (!isMigrated || monitor.isBlocked) throw unavailable()
      for (let tries = 1; ; tries += 1) {
        try {
          return await within(isPooled ? unpipelined.run(() => work(sql)) : work(sql))
        } catch (error) {
          const { code, routine } = error as { code?: unknown; routine?: unknown }
          // The server rolled the database transaction back because of a conflict with another database transaction.
          // None of its changes were committed, so the work can be repeated.
          if ((code === DEADLOCK || code === SERIALIZATION) && tries < MAX_TRIES) continue
          // Each connection prepares the statement separately, and the prepared statement can be outdated or lost on
          // every connection. So a query is repeated at most once for each connection.
          if (STALE_STATEMENT.has(routine) && tries <= CONNECTIONS) {
            // Only a pooler drops prepared statements. Prepared statements are disabled from now on, because preparing
            // a statement repeatedly costs more than not preparing it.
            if (routine === LOST_STATEMENT) sql.options.prepare = false
            continue
          }
          if (isConnectionLoss(error)) {
            reportDown(error)
            throw unavailable(error)
          }
          if (typeof code === 'string' && code.startsWith(DATA_EXCEPTION))
            throw new IntegrationError(
              'invalid_request',
              'a value is outside the range that can be stored',
              {
                cause: error,
              },
            )
          throw error
        }
      }
    },
    listen: listener.listen,
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await Promise.all([
        ...[sql, migrating].map((each) => each.end({ timeout: 2 })),
        ...new Set([monitor, listener]).values().map((each) => each.end()),
      ])
      for (const { sockets } of [database, listenDatabase]) sockets.closeAll()
      // Closing does not wait for `watch`, because `watch` may wait for the migration lock that another replica holds.
      await Promise.race([watching, delay(0)])
    },
  }
}

/**
 * Checks the version and the clock of a server on the first connection.
 *
 * @throws {UnsupportedBackend} if the server is too old.
 */
async function examine(sql: postgres.Sql, dependency: Dependency): Promise<void> {
  const requestedAt = Date.now()
  const [server] = await sql<{ version: string; ms: number }[]>`
    select current_setting('server_version') as version,
           (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`.simple()
  const respondedAt = Date.now()
  throwOnProblem([checkVersion('postgres', server?.version ?? 'unknown')])
  if (server !== undefined)
    dependency.logCheck(checkClock({ remoteAt: server.ms, requestedAt, respondedAt }))
}

// SQLSTATE codes and one SQLSTATE class (PostgreSQL manual, appendix A).
const DEADLOCK = '40P01'
const SERIALIZATION = '40001'
const DATA_EXCEPTION = '22'
const MAX_TRIES = 5
const LOST_STATEMENT = 'FetchPreparedStatement'
/**
 * The PostgreSQL routines that report that a prepared statement has a new result type (0A000) or is missing (26000).
 */
const STALE_STATEMENT: ReadonlySet<unknown> = new Set(['RevalidateCachedQuery', LOST_STATEMENT])

const unavailable = (cause?: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the database cannot be reached now', {
    retryAfterSeconds: 2,
    ...(cause !== undefined && { cause }),
  })

/**
 * Milliseconds that are added to each timeout. When the coordinator continues after it was frozen, its timers fire
 * before it reads responses that have already arrived. The added time lets the coordinator read these responses first.
 */
const GRACE_MS = 100

/**
 * Rejects after the timeout. Without the timeout, a query on an unresponsive connection would wait until TCP gives up
 * its retransmissions.
 */
async function withTimeout<Result>(work: Promise<Result>, ms: number): Promise<Result> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const fail = (): void =>
      reject(Object.assign(new Error('no response in time'), { code: 'ETIMEDOUT' }))
    timer = setTimeout(() => (timer = setTimeout(fail, GRACE_MS)), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Whether an error comes from the connection or the server instead of the statement itself. Such errors are: errors
 * that ended or rejected the connection (FATAL), every code of the driver or the operating system, and SQLSTATE classes
 * 08, 40, 53, 57, 58 and code 25006. These SQLSTATEs report the state of the server, for example persistent deadlocks,
 * or read-only after a failover.
 */
function isConnectionLoss(error: unknown): boolean {
  if (error instanceof IntegrationError) return false
  const { code } = (error ?? {}) as { code?: unknown }
  if (typeof code !== 'string') return false
  if (!(error instanceof postgres.PostgresError)) return true
  return error.severity !== 'ERROR' || /^(08|40|53|57|58)/.test(code) || code === '25006'
}
