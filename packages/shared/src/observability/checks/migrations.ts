/** The coordinator's migrations as they are shipped, against what a database has of them. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { type Finding, ok, problem, warning } from './check-result.ts'

const Journal = z.object({
  entries: z.array(z.object({ idx: z.int(), when: z.number(), tag: z.string() })).min(1),
})
const Snapshot = z.object({
  tables: z.record(
    z.string(),
    z.object({ name: z.string(), columns: z.record(z.string(), z.unknown()) }),
  ),
})

/** What a database has of the migrations. */
export interface MigrationState {
  /** Null where nothing keeps book. */
  readonly applied: readonly AppliedMigration[] | null
  /** `Table.Column` of each column there is. */
  readonly columns: ReadonlySet<string>
}

/** As drizzle's own book has it: the time is that of the migration, not of its run. */
interface AppliedMigration {
  readonly at: number
  readonly hash: string
}

const check = 'migrations'
const RESTORE =
  'Restore a backup. If there is nothing to keep, drop and create the database: a coordinator makes its tables.'

type Query = <Row extends object>(
  text: TemplateStringsArray,
  ...values: never[]
) => PromiseLike<readonly Row[]>

/** Reads it of the schema of this connection; `sql` is the driver's tag. */
export async function readMigrationState(sql: Query): Promise<MigrationState> {
  const [book] = await sql<{ name: string | null }>`
    select to_regclass('drizzle.__drizzle_migrations')::text as name`
  const applied = book?.name
    ? await sql<AppliedMigration>`
        select created_at::float8 as at, hash from drizzle.__drizzle_migrations order by created_at`
    : null
  const columns = await sql<{ name: string }>`
    select table_name || '.' || column_name as name
    from information_schema.columns where table_schema = current_schema()`
  return { applied, columns: new Set(columns.map(({ name }) => name)) }
}

/** What there is to tell of a database, against the migrations that are shipped in `folder`. */
export function migrationFindings(
  folder: string,
  { applied, columns }: MigrationState,
): readonly Finding[] {
  const migrations = shipped(folder)
  const newest = migrations.at(-1)?.columns ?? []
  if (applied === null || applied.length === 0)
    return newest.some((column) => columns.has(column))
      ? [problem(check, 'half-migrated: there are tables, but no record of migrations', RESTORE)]
      : [warning(check, 'none applied yet', 'Start a coordinator: it makes its tables.')]

  const book = new Map(applied.map(({ at, hash }) => [at, hash]))
  const last = Math.max(...book.keys())
  const changed = migrations.find(({ at, hash }) => book.has(at) && book.get(at) !== hash)
  if (changed !== undefined)
    return [
      problem(check, `${changed.tag} was applied in another form than it is shipped`, RESTORE),
    ]
  const gap = migrations.find(({ at }) => !book.has(at) && at < last)
  if (gap !== undefined) return [halfMigrated(`${gap.tag} was left out`)]
  const reached = migrations.find(({ at }) => at === last)
  if (reached === undefined)
    return [
      problem(
        check,
        'the database was migrated by a newer version than this one',
        'Run that version or a newer one.',
      ),
    ]
  const lacking = reached.columns.filter((column) => !columns.has(column))
  if (lacking.length > 0) return [halfMigrated(`${lacking.slice(0, 3).join(', ')} is missing`)]
  const early = newest.filter((column) => columns.has(column) && !reached.columns.includes(column))
  if (early.length > 0)
    return [halfMigrated(`${early.slice(0, 3).join(', ')} is there before its migration`)]
  const toCome = migrations.filter(({ at }) => at > last)
  return toCome.length === 0
    ? [ok(check, `all ${migrations.length} applied`)]
    : [
        warning(
          check,
          `${toCome.map(({ tag }) => tag).join(', ')} not applied yet`,
          'Start a coordinator of this version: it applies them.',
        ),
      ]
}

/** A database that is not as its book of migrations says. */
export const halfMigrated = (how: string): Finding =>
  problem(check, `half-migrated: ${how}`, RESTORE)

/** The migrations in their order, each with the columns that there are after it. */
function shipped(folder: string) {
  const read = (name: string): string => readFileSync(join(folder, name), 'utf8')
  const { entries } = Journal.parse(JSON.parse(read('meta/_journal.json')))
  return entries.map(({ idx, when, tag }) => {
    const snapshot = `meta/${String(idx).padStart(4, '0')}_snapshot.json`
    const { tables } = Snapshot.parse(JSON.parse(read(snapshot)))
    return {
      at: when,
      tag,
      hash: createHash('sha256')
        .update(read(`${tag}.sql`))
        .digest('hex'),
      columns: Object.values(tables).flatMap((table) =>
        Object.keys(table.columns).map((column) => `${table.name}.${column}`),
      ),
    }
  })
}
