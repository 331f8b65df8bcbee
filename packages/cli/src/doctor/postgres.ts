import { addAbortListener } from 'node:events'
import { join } from 'node:path'
import {
  type CheckResult,
  ok,
  problem,
  checkVersion,
  checkClock,
} from '@integration-host/shared/observability/checks'
import { checkMigrations, readMigrationState } from '@integration-host/postgres/migrations'
import { checkPostgresStandbys, readPostgresReplication } from '@integration-host/postgres/checks'
import { parsePostgresUrl, type TlsPaths } from '@integration-host/postgres/address'
import { driverOptions } from '@integration-host/postgres/client'
import { createServerSockets } from '@integration-host/postgres/server-sockets'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { hostOf, DeadlinePassed, reached, unreachable } from './reach.ts'
import { resultsOf } from './results.ts'

const TIMEOUT_S = 3
const MIGRATIONS = {
  folder: join(import.meta.dirname, '../../../../services/coordinator/migrations'),
  appliedBy: 'coordinator',
}

/** Checks whether a Postgres server stores data durably and has the coordinator's tables. The check writes nothing. */
export async function examinePostgres(
  url: Secret,
  tls: TlsPaths,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const host = hostOf(url)
  const { default: connect } = await import('postgres')
  const parsed = parsePostgresUrl(url.reveal())
  const address = {
    ...parsed,
    connectTimeoutMs: TIMEOUT_S * 1_000,
    // A read-only server is accepted here, because the check `role` reports it.
    needsWrites: parsed.needsWrites && parsed.servers.length > 1,
  }
  const session = { statement_timeout: String(TIMEOUT_S * 1_000) }
  const sockets = createServerSockets(address, { tls, session, limit: 1 })
  const sql = connect(
    driverOptions(address, sockets, { max: 1, startup: { application_name: 'doctor' } }),
  )
  const stop = (): void => void sql.end({ timeout: 0 })
  using _ = addAbortListener(signal, stop)
  try {
    const [settings] = await sql<Settings[]>`
      select current_setting('server_version') as version,
             current_setting('synchronous_commit') as synchronous_commit,
             current_setting('fsync') as fsync,
             current_setting('full_page_writes') as full_page_writes,
             current_setting('transaction_read_only') as read_only,
             current_setting('server_encoding') as encoding`
    if (settings === undefined) throw new Error('no row')
    const requestedAt = Date.now()
    const [time] = await sql<{ ms: string }[]>`
      select (extract(epoch from clock_timestamp()) * 1000)::text as ms`
    const clock = checkClock({ remoteAt: Number(time?.ms), requestedAt, respondedAt: Date.now() })
    return resultsOf(
      reached(host),
      checkVersion('postgres', settings.version),
      checkSettings(settings),
      settings.read_only === 'off' && checkPostgresStandbys(await readPostgresReplication(sql)),
      checkMigrations(MIGRATIONS, await readMigrationState(sql)),
      clock,
    )
  } catch (error) {
    return [unreachable(host, 'DATABASE_URL', signal.aborted ? new DeadlinePassed() : error)]
  } finally {
    await sql.end({ timeout: 1 })
    sockets.closeAll()
  }
}

type Settings = Readonly<
  Record<
    'version' | 'synchronous_commit' | 'fsync' | 'full_page_writes' | 'read_only' | 'encoding',
    string
  >
>

function checkSettings(settings: Settings): CheckResult[] {
  const { synchronous_commit: commit, fsync, full_page_writes: pages, encoding } = settings
  return resultsOf(
    commit === 'off'
      ? problem(
          'synchronous_commit',
          commit,
          'Set it on (ALTER DATABASE … SET synchronous_commit = on): a crash loses recorded steps, which run again.',
        )
      : ok('synchronous_commit', commit),
    fsync === 'on'
      ? ok('fsync', fsync)
      : problem('fsync', fsync, 'Set fsync = on: a power failure can destroy the database.'),
    pages !== 'on' &&
      problem('full_page_writes', pages, 'Set full_page_writes = on, unless the disk is safe.'),
    settings.read_only !== 'off' &&
      problem('role', 'read only', 'Point DATABASE_URL at the primary.'),
    encoding !== 'UTF8' && problem('encoding', encoding, 'Use a database with the encoding UTF8.'),
  )
}
