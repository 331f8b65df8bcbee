import { type CheckResult, ok, warning } from '@integration-host/shared/observability/checks'
import type postgres from 'postgres'

const CHECK = 'connection pooler'

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
    ? ok(CHECK, 'pools transactions')
    : warning(
        CHECK,
        'pools transactions, so that settings and LISTEN of a session have no lasting effect',
        remedies.join(' '),
      )
}
