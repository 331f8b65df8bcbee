/**
 * Compares the migrations that drizzle-kit generated with those that a database has applied. This file
 * names no table: the snapshots in the migrations folder list the columns that exist after each migration.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import {
  type CheckResult,
  ok,
  problem,
  warning,
} from '@integration-host/shared/observability/checks'

const Journal = z.object({
  entries: z.array(z.object({ idx: z.int(), when: z.number(), tag: z.string() })).min(1),
})
const Snapshot = z.object({
  tables: z.record(
    z.string(),
    z.object({ name: z.string(), columns: z.record(z.string(), z.unknown()) }),
  ),
})

/** The migrations that a version of a service is shipped with. */
export interface ShippedMigrations {
  /** The folder that drizzle-kit generated: the SQL files, `meta/_journal.json` and a snapshot for each migration. */
  readonly folder: string
  /** The service that applies the migrations at its start, such as `coordinator`; the remedy names it. */
  readonly appliedBy: string
}

/** The migrations that a database has applied, and the columns that it has. */
export interface MigrationState {
  /** `null` if the database has no migration table. */
  readonly applied: readonly AppliedMigration[] | null
  /** `Table.Column` of every column in the schema. */
  readonly columns: ReadonlySet<string>
}

/** A row of drizzle's migration table. `at` is the time the migration was written, not the time it was applied. */
interface AppliedMigration {
  readonly at: number
  readonly hash: string
}

const check = 'migrations'
const restore = (appliedBy: string): string =>
  `Restore a backup. If there is nothing to keep, drop and create the database: a ${appliedBy} creates its tables.`

/** The tag function of the driver, outside of a transaction or within one. */
export type Query = <Row extends object>(
  text: TemplateStringsArray,
  ...values: never[]
) => PromiseLike<readonly Row[]>

/** Reads the migration state of the connection's current schema; `sql` is the driver's tag function. */
export async function readMigrationState(sql: Query): Promise<MigrationState> {
  const [table] = await sql<{ name: string | null }>`
    select to_regclass('drizzle.__drizzle_migrations')::text as name`
  const applied = table?.name
    ? await sql<AppliedMigration>`
        select created_at::float8 as at, hash from drizzle.__drizzle_migrations order by created_at`
    : null
  const columns = await sql<{ name: string }>`
    select table_name || '.' || column_name as name
    from information_schema.columns where table_schema = current_schema()`
  return { applied, columns: new Set(columns.map(({ name }) => name)) }
}

/** Compares a database with the shipped migrations; returns one check result. */
export function checkMigrations(
  { folder, appliedBy }: ShippedMigrations,
  { applied, columns }: MigrationState,
): readonly CheckResult[] {
  const migrations = readMigrations(folder)
  const newest = migrations.at(-1)?.readColumns() ?? []
  const remedy = restore(appliedBy)
  if (applied === null || applied.length === 0)
    return newest.some((column) => columns.has(column))
      ? [halfMigrated('there are tables, but no record of migrations', appliedBy)]
      : [warning(check, 'none applied yet', `Start a ${appliedBy}: it creates its tables.`)]

  const hashes = new Map(applied.map(({ at, hash }) => [at, hash]))
  const last = Math.max(...hashes.keys())
  const changed = migrations.find(({ at, hash }) => hashes.has(at) && hashes.get(at) !== hash)
  if (changed !== undefined)
    return [problem(check, `${changed.tag} was applied in another form than it is shipped`, remedy)]
  const gap = migrations.find(({ at }) => !hashes.has(at) && at < last)
  if (gap !== undefined) return [halfMigrated(`${gap.tag} was left out`, appliedBy)]
  const reached = migrations.find(({ at }) => at === last)
  if (reached === undefined)
    return [
      problem(
        check,
        'the database was migrated by a newer version than this one',
        'Run that version or a newer one.',
      ),
    ]
  const expected = reached.readColumns()
  const missing = expected.filter((column) => !columns.has(column))
  if (missing.length > 0)
    return [halfMigrated(`${missing.slice(0, 3).join(', ')} is missing`, appliedBy)]
  const early = newest.filter((column) => columns.has(column) && !expected.includes(column))
  if (early.length > 0)
    return [halfMigrated(`${early.slice(0, 3).join(', ')} exists before its migration`, appliedBy)]
  const pending = migrations.filter(({ at }) => at > last)
  return pending.length === 0
    ? [ok(check, `all ${migrations.length} applied`)]
    : [
        warning(
          check,
          `${pending.map(({ tag }) => tag).join(', ')} not applied yet`,
          `Start a ${appliedBy} of this version: it applies them.`,
        ),
      ]
}

/** Returns the check result for a database whose tables differ from what its migration table says. */
export const halfMigrated = (how: string, appliedBy: string): CheckResult =>
  problem(check, `half-migrated: ${how}`, restore(appliedBy))

/**
 * Reads the shipped migrations in order, each with its statements. `readColumns` returns `Table.Column` of every column
 * that exists after the migration, and `hash` is what drizzle's own migrator would record.
 */
export function readMigrations(folder: string) {
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8')
  const { entries } = Journal.parse(JSON.parse(read('meta/_journal.json')))
  return entries.map(({ idx, when, tag }) => {
    const sql = read(`${tag}.sql`)
    return {
      at: when,
      tag,
      hash: createHash('sha256').update(sql).digest('hex'),
      statements: sql.split('--> statement-breakpoint'),
      // A start needs only the columns after one or two of the migrations, and reading all snapshots takes it 20 ms.
      readColumns(): readonly string[] {
        const snapshot = `meta/${String(idx).padStart(4, '0')}_snapshot.json`
        const { tables } = Snapshot.parse(JSON.parse(read(snapshot)))
        return Object.values(tables).flatMap((table) =>
          Object.keys(table.columns).map((column) => `${table.name}.${column}`),
        )
      },
    }
  })
}
