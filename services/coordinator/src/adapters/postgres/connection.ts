import { backoffMs } from '@integration-host/shared/process/backoff'
import { setTimeout as delay } from 'node:timers/promises'
import { checkClock } from '@integration-host/shared/observability/checks/clock'
import {
  UnsupportedBackend,
  throwOnProblem,
  checkVersion,
} from '@integration-host/shared/observability/checks/check-result'
import { IntegrationError } from '@integration-host/shared/errors'
import { type Dependency, reasonOf } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Secret } from '@integration-host/shared/secrets/secret'
import postgres from 'postgres'
import { migrate } from './migrate.ts'

export interface PostgresOptions {
  /** The application name that `pg_stat_activity` shows. */
  readonly name: string
  readonly dependency: Dependency
  readonly logger: Logger
  /**
   * The time limit of a statement in milliseconds. A connection that stays unresponsive for another second is
   * closed.
   */
  readonly statementTimeoutMs?: number
}

/** The only access to the database. A call fails with `store_unavailable` instead of waiting for the database. */
export interface PostgresConnection extends AsyncDisposable {
  readonly run: <Result>(work: (sql: postgres.Sql) => Promise<Result>) => Promise<Result>
  /**
   * Calls `onNotice` for each notification on a channel, and after each reconnect, because notifications sent
   * while the connection was down are not repeated.
   */
  readonly listen: (channel: string, onNotice: () => void) => void
}

/**
 * PostgreSQL plans a prepared statement while the tables are small and keeps that plan after they have grown.
 * Every transaction would then pay for a plan that scans a whole table. All statements except the audit find
 * few rows by key, so full scans, and the joins that need full scans, are disabled.
 */
const LOOKUP_BY_KEY = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  // While full scans are disabled, an unavoidable one gets such a high cost estimate that PostgreSQL would
  // spend time on JIT compilation.
  jit: 'off',
}
/** The time format that `isoTime` parses, whatever the settings of the database are. */
const TIMES = { TimeZone: 'UTC', DateStyle: 'ISO' }
const CONNECTIONS = 10
const CHECK_MS = 1_000
const STATEMENT_TIMEOUT_MS = 10_000
const TIMESTAMPTZ = 1184

/** Connects in the background, and applies the migrations before any other statement runs. */
export function connectPostgres(url: Secret, options: PostgresOptions): PostgresConnection {
  const { dependency, logger, name, statementTimeoutMs = STATEMENT_TIMEOUT_MS } = options
  const shutdown = new AbortController()
  let isMigrated = false
  const responseTimeoutMs = statementTimeoutMs + 1_000
  const client = (own: { max: number; answer_timeout?: number; idle_timeout?: number }) =>
    postgres(url.reveal(), {
      ...own,
      connect_timeout: 5,
      // The driver's own back-off between reconnects grows to 20 s, and queries would wait that long.
      backoff: (attempt: number) =>
        backoffMs(attempt + 1, { baseMs: 50, capMs: 1_000, random: 1 }) / 1_000, // in seconds
      max_lifetime: 1_800,
      // The driver would query the types on each new connection. It does not handle a failure of that query,
      // and the process would end.
      fetch_types: false,
      onnotice: () => {},
      connection: {
        application_name: name,
        ...TIMES,
        statement_timeout: statementTimeoutMs,
        ...LOOKUP_BY_KEY,
      },
      types: {
        isoTime: {
          to: TIMESTAMPTZ,
          from: [TIMESTAMPTZ],
          serialize: (value: string) => value,
          parse: isoTime,
        },
      },
    }) as unknown as postgres.Sql // without the cast its type would include the custom time type
  const sql = client({ max: CONNECTIONS, answer_timeout: responseTimeoutMs / 1_000 })
  // A migration may take longer than any other statement.
  const migrating = client({ max: 1, idle_timeout: 1 })

  // This timeout also covers the time that a statement waits for a free connection, which the driver does not limit.
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
        await within(sql`select 1`)
        dependency.up()
      } catch (error) {
        dependency.down(reasonOf(error))
        if (!isMigrated && !(error instanceof UnsupportedBackend))
          logger.debug({ err: error }, 'database schema is not migrated yet')
      }
      await delay(CHECK_MS, null, { signal: shutdown.signal }).catch(() => {})
    }
  }
  const watching = watch()

  return {
    async run(work) {
      if (!isMigrated) throw unavailable()
      for (let tries = 1; ; tries += 1) {
        try {
          return await within(work(sql))
        } catch (error) {
          const { code, routine } = error as { code?: unknown; routine?: unknown }
          // The server rolled this transaction back in favour of another one, so none of its changes were committed.
          if ((code === DEADLOCK || code === SERIALIZATION) && tries < MAX_TRIES) continue
          // Each connection has prepared statements of its own. Any of them may be older than a migration, or
          // lost, so each connection may need one repetition.
          if (STALE_STATEMENT.has(routine) && tries <= CONNECTIONS) continue
          if (isConnectionLoss(error)) {
            dependency.down(reasonOf(error))
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
    listen(channel, onNotice) {
      // The driver reconnects this dedicated connection by itself, so a failure of the first attempt needs no
      // other handling.
      sql.listen(channel, onNotice, onNotice).catch(() => {})
    },
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await Promise.all([sql, migrating].map((each) => each.end({ timeout: 2 })))
      // `watch` may be waiting for the migration lock that another replica holds, so closing does not wait for it.
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
           (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`
  const respondedAt = Date.now()
  throwOnProblem([checkVersion('postgres', server?.version ?? 'unknown')])
  if (server !== undefined)
    dependency.logCheck(checkClock({ remoteAt: server.ms, requestedAt, respondedAt }))
}

/**
 * Returns a time in ISO 8601 with milliseconds, in the format of `toISOString`. The input is a time as
 * PostgreSQL prints it in UTC: `2026-11-20 09:30:00.25+00`, or in JSON `2026-11-20T09:30:00.25+00:00`. Parsed
 * by character index, because this runs several times per transaction.
 */
export function isoTime(value: string): string {
  let digits = 0
  if (value[19] === '.') while (digits < 3 && isDigit(value.charCodeAt(20 + digits))) digits += 1
  const fraction = value.slice(20, 20 + digits).padEnd(3, '0')
  return `${value.slice(0, 10)}T${value.slice(11, 19)}.${fraction}Z`
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57

// Codes and one class of SQLSTATE (PostgreSQL manual, appendix A).
const DEADLOCK = '40P01'
const SERIALIZATION = '40001'
const DATA_EXCEPTION = '22'
const MAX_TRIES = 5
/** The PostgreSQL routines that report that a prepared statement has a new result type (0A000) or is missing (26000). */
const STALE_STATEMENT: ReadonlySet<unknown> = new Set([
  'RevalidateCachedQuery',
  'FetchPreparedStatement',
])

const unavailable = (cause?: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the database cannot be reached now', {
    retryAfterSeconds: 2,
    ...(cause !== undefined && { cause }),
  })

/**
 * Milliseconds that are added to each timeout. After the process was frozen, timers fire before the responses
 * that already arrived in its sockets are read. The added time lets the process read the responses first.
 */
const GRACE_MS = 100

/**
 * Rejects after the timeout. Without it, a query on an unresponsive connection would wait as long as TCP
 * retransmits.
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
 * Whether an error comes from the connection or the server instead of the statement itself. This is true for
 * errors that ended or rejected the connection (FATAL), and for every code of the driver or the operating
 * system. It is also true for SQLSTATE classes 08, 40, 53, 57, 58 and code 25006, which report the state of the
 * server (such as persistent deadlocks, or read-only after a failover).
 */
function isConnectionLoss(error: unknown): boolean {
  if (error instanceof IntegrationError) return false
  const { code } = (error ?? {}) as { code?: unknown }
  if (typeof code !== 'string') return false
  if (!(error instanceof postgres.PostgresError)) return true
  return error.severity !== 'ERROR' || /^(08|40|53|57|58)/.test(code) || code === '25006'
}
