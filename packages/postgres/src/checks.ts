import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks'
import type postgres from 'postgres'
import type { Query } from './migrations.ts'

/** The replication settings of a PostgreSQL primary and its connected standbys. */
export interface PostgresReplication {
  readonly synchronousCommit: string
  /** The setting `synchronous_standby_names`; empty if no commit waits for a standby. */
  readonly standbyNames: string
  /**
   * The `sync_state` of each standby in `pg_stat_replication`: `sync`, `quorum`, `potential` or `async`; `null` if the
   * database user may not read this column.
   */
  readonly syncStates: readonly (string | null)[]
}

/** Reads the replication settings; `sql` is the driver's tag function. */
export async function readPostgresReplication(sql: Query): Promise<PostgresReplication> {
  const [settings] = await sql<{ commit: string; names: string }>`
    select current_setting('synchronous_commit') as commit,
           current_setting('synchronous_standby_names') as names`
  // pg_stat_replication also lists backups and subscribers of logical replication. They are left out, because they are
  // never promoted.
  const standbys = await sql<{ sync: string | null }>`
    select r.sync_state as sync
    from pg_stat_replication r
    where r.application_name not in ('pg_basebackup', 'pg_receivewal')
      and not exists (
        select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')`
  return {
    synchronousCommit: settings?.commit ?? 'unknown',
    standbyNames: settings?.names ?? '',
    syncStates: standbys.map(({ sync }) => sync),
  }
}

const CHECK = 'standbys'
const SYNCHRONOUS: ReadonlySet<string | null> = new Set(['sync', 'quorum', 'potential'])

/** Checks whether an accepted order survives the loss of the primary, and whether one standby can stop all commits. */
export function checkPostgresStandbys(replication: PostgresReplication): CheckResult {
  const { synchronousCommit, standbyNames, syncStates } = replication
  if (standbyNames.trim() === '')
    return syncStates.length === 0
      ? ok(CHECK, 'none')
      : problem(
          CHECK,
          `${syncStates.length}, asynchronous: if one is promoted, accepted orders vanish`,
          "Run two standbys and set synchronous_standby_names = 'ANY 1 (*)' (docs/clusters.md).",
        )
  if (synchronousCommit === 'local' || synchronousCommit === 'off')
    return problem(
      CHECK,
      `not waited for, because synchronous_commit is ${synchronousCommit}: if one is promoted, accepted orders vanish`,
      'Set synchronous_commit = on.',
    )
  if (syncStates.includes(null))
    return skipped(
      CHECK,
      'pg_stat_replication is not shown to this user',
      'Grant it the role pg_monitor.',
    )
  const candidates = syncStates.filter((state) => SYNCHRONOUS.has(state)).length
  const needed = Number(/^(?:ANY|FIRST)?\s*(\d+)\s*\(/i.exec(standbyNames.trim())?.[1] ?? 1)
  if (candidates < needed)
    return problem(
      CHECK,
      `${candidates} synchronous, ${needed} needed: every commit waits`,
      'Start the standbys. Do not cancel a commit that waits: it would count without its copy.',
    )
  return candidates === needed
    ? warning(
        CHECK,
        `${candidates} synchronous, all of them needed`,
        'Add a standby: when one of them stops responding, every commit waits for it.',
      )
    : ok(CHECK, `${candidates} synchronous, ${needed} must have each commit`)
}

const POOLER_CHECK = 'connection pooler'

/**
 * Checks LISTEN and the settings of the session. Neither has a lasting effect if a pooler assigns a server session to
 * the coordinator for only one database transaction, as PgBouncer does with `pool_mode = transaction`. With such a
 * pooler, the settings take effect if they are set for the role.
 */
export async function checkPooling(
  sql: postgres.Sql,
  settings: Readonly<Record<string, string>>,
  canListen: boolean,
): Promise<CheckResult> {
  const rows = await sql<{ name: string; value: string }[]>`
    select name, reset_val as value from pg_settings where name in ${sql(Object.keys(settings))}`
  const missing = rows.filter(({ name, value }) => settings[name] !== value)
  const remedies = [
    ...(missing.length === 0
      ? []
      : [
          `Set for the role of DATABASE_URL by ALTER ROLE … SET: ${missing
            .map(({ name }) => `${name} = ${settings[name]}`)
            .join(', ')}.`,
        ]),
    ...(canListen ? [] : ['Set DATABASE_LISTEN_URL to an address that is not pooled.']),
  ]
  return remedies.length === 0
    ? ok(POOLER_CHECK, 'pools transactions')
    : warning(
        POOLER_CHECK,
        'pools transactions, so that settings and LISTEN of a session have no lasting effect',
        remedies.join(' '),
      )
}
