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
  /** Shown in `pg_stat_activity`. */
  readonly name: string
  readonly dependency: Dependency
  readonly logger: Logger
  /** Milliseconds a statement may take; a connection that is silent for a second more is given up. */
  readonly answerMs?: number
}

/** The one way to the database: waits for nothing, fails with `store_unavailable`. */
export interface PostgresConnection extends AsyncDisposable {
  readonly run: <Result>(work: (sql: postgres.Sql) => Promise<Result>) => Promise<Result>
  /**
   * Calls `onNotice` for each notification of a channel, and each time it listens again: what came while the
   * line was down is not repeated.
   */
  readonly listen: (channel: string, onNotice: () => void) => void
}

/**
 * Statements are planned once, while the tables are small, and keep their plan when they have grown: a plan that
 * reads a table whole is then the cost of every transaction. All but the audit find few rows by a key.
 */
const LOOK_UP_BY_KEY = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  // A scan that cannot be avoided now looks dear enough to be compiled first.
  jit: 'off',
}
/** How `isoTime` reads times, whatever the database's own settings are. */
const TIMES = { TimeZone: 'UTC', DateStyle: 'ISO' }
const CONNECTIONS = 10
const LOOK_MS = 1_000
const ANSWER_MS = 10_000
const TIMESTAMPTZ = 1184

/** Connects in the background and brings the tables up to date first. */
export function connectPostgres(url: Secret, options: PostgresOptions): PostgresConnection {
  const { dependency, logger, name, answerMs = ANSWER_MS } = options
  const leaving = new AbortController()
  let isMigrated = false
  const silenceMs = answerMs + 1_000
  const client = (own: { max: number; answer_timeout?: number; idle_timeout?: number }) =>
    postgres(url.reveal(), {
      ...own,
      connect_timeout: 5,
      // Its own back-off grows to 20 s and holds queries all that time.
      backoff: (attempt: number) => Math.min(1, 0.05 * 2 ** attempt),
      max_lifetime: 1_800,
      // A question of its own with each connection, whose failure nobody catches: it would end the process.
      fetch_types: false,
      onnotice: () => {},
      connection: {
        application_name: name,
        ...TIMES,
        statement_timeout: answerMs,
        ...LOOK_UP_BY_KEY,
      },
      types: {
        isoTime: {
          to: TIMESTAMPTZ,
          from: [TIMESTAMPTZ],
          serialize: (value: string) => value,
          parse: isoTime,
        },
      },
    }) as unknown as postgres.Sql // its type would carry the time's own
  const sql = client({ max: CONNECTIONS, answer_timeout: silenceMs / 1_000 })
  // A migration may take longer than any statement of daily work.
  const migrating = client({ max: 1, idle_timeout: 1 })

  // A statement may wait for a connection as well.
  const within = <Result>(work: Promise<Result>): Promise<Result> => answered(work, silenceMs)

  const watch = async (): Promise<void> => {
    while (!leaving.signal.aborted) {
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
          logger.debug({ err: error }, 'database is not up to date yet')
      }
      await delay(LOOK_MS, null, { signal: leaving.signal }).catch(() => {})
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
          // The server took this one back so that another could go on: nothing of it was done.
          if ((code === DEADLOCK || code === SERIALIZATION) && tries < MAX_TRIES) continue
          // Each connection has its own statements, and each may be from before a migration, or gone.
          if (STALE_STATEMENT.has(routine) && tries <= CONNECTIONS) continue
          if (isConnectionLoss(error)) {
            dependency.down(reasonOf(error))
            throw unavailable(error)
          }
          if (typeof code === 'string' && code.startsWith(DATA_EXCEPTION))
            throw new IntegrationError('invalid_request', 'a value is beyond what can be stored', {
              cause: error,
            })
          throw error
        }
      }
    },
    listen(channel, onNotice) {
      // On a connection of its own, which the driver opens again and again; the first failure is no other.
      sql.listen(channel, onNotice, onNotice).catch(() => {})
    },
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await Promise.all([sql, migrating].map((each) => each.end({ timeout: 2 })))
      // But not for the lock of another replica's migration.
      await Promise.race([watching, delay(0)])
    },
  }
}

/**
 * Looks at a server that has been reached for the first time.
 *
 * @throws {UnsupportedBackend} when it is too old.
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
 * ISO 8601 in milliseconds, as `toISOString` prints it, of a time that a session in UTC printed (`2026-11-20
 * 09:30:00.25+00`, in JSON `2026-11-20T09:30:00.25+00:00`). By its characters: there are many to a transaction.
 */
export function isoTime(value: string): string {
  let digits = 0
  if (value[19] === '.') while (digits < 3 && isDigit(value.charCodeAt(20 + digits))) digits += 1
  const fraction = value.slice(20, 20 + digits).padEnd(3, '0')
  return `${value.slice(0, 10)}T${value.slice(11, 19)}.${fraction}Z`
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57

// SQLSTATE
const DEADLOCK = '40P01'
const SERIALIZATION = '40001'
const DATA_EXCEPTION = '22'
const MAX_TRIES = 5
/** Where PostgreSQL finds that a prepared statement has another result now (0A000), or is not there (26000). */
const STALE_STATEMENT: ReadonlySet<unknown> = new Set([
  'RevalidateCachedQuery',
  'FetchPreparedStatement',
])

const unavailable = (cause?: unknown): IntegrationError =>
  new IntegrationError('store_unavailable', 'the database cannot be reached now', {
    retryAfterSeconds: 2,
    ...(cause !== undefined && { cause }),
  })

/** After a freeze of this process timers come before the answers that lie in its sockets. */
const GRACE_MS = 100

/** A query on a line that went silent would wait as long as TCP does. */
async function answered<Result>(work: Promise<Result>, ms: number): Promise<Result> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void =>
      reject(Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' }))
    timer = setTimeout(() => (timer = setTimeout(giveUp, GRACE_MS)), ms)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

// Everything but an error about the statement itself: what ended the connection or refused it (FATAL), SQLSTATE
// classes 08, 40, 53, 57, 58 and 25006, the server's state (deadlocks that do not end, read-only after a failover), and
// any code of the driver's or the system's.
function isConnectionLoss(error: unknown): boolean {
  if (error instanceof IntegrationError) return false
  const { code } = (error ?? {}) as { code?: unknown }
  if (typeof code !== 'string') return false
  if (!(error instanceof postgres.PostgresError)) return true
  return error.severity !== 'ERROR' || /^(08|40|53|57|58)/.test(code) || code === '25006'
}
