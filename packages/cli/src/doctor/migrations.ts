/** The coordinator's migrations as they are shipped, against what a database has of them. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { type Finding, ok, problem, warning } from './finding.ts'

const FOLDER = join(import.meta.dirname, '../../../../services/coordinator/migrations')

const Journal = z.object({
  entries: z.array(z.object({ idx: z.int(), when: z.number(), tag: z.string() })).min(1),
})
const Snapshot = z.object({
  tables: z.record(
    z.string(),
    z.object({ name: z.string(), columns: z.record(z.string(), z.unknown()) }),
  ),
})

/** As drizzle's own book has it: the time is that of the migration, not of its run. */
export interface AppliedMigration {
  readonly at: number
  readonly hash: string
}

const check = 'migrations'
const RESTORE =
  'Restore a backup. If there is nothing in it to keep, drop the Order_ tables and the schema drizzle: a coordinator makes them anew.'

/** `columns` has `Table.Column` of all there are; `applied` is null where nothing keeps book. */
export function migrationFindings(
  applied: readonly AppliedMigration[] | null,
  columns: ReadonlySet<string>,
): Finding[] {
  const { migrations, columns: needed } = shipped()
  const present = needed.filter((column) => columns.has(column))
  if (applied === null || applied.length === 0)
    return present.length === 0
      ? [warning(check, 'none applied yet', 'Start a coordinator: it makes its tables.')]
      : [problem(check, 'half-migrated: there are tables, but no record of migrations', RESTORE)]

  const book = new Map(applied.map(({ at, hash }) => [at, hash]))
  const last = Math.max(...book.keys())
  const changed = migrations.find(({ at, hash }) => book.has(at) && book.get(at) !== hash)
  if (changed !== undefined)
    return [
      problem(check, `${changed.tag} was applied in another form than it is shipped`, RESTORE),
    ]
  const gap = migrations.find(({ at }) => !book.has(at) && at < last)
  if (gap !== undefined) return [problem(check, `half-migrated: ${gap.tag} was left out`, RESTORE)]
  if (!migrations.some(({ at }) => at === last))
    return [
      problem(
        check,
        'the database was migrated by a newer version than this one',
        'Run that version or a newer one.',
      ),
    ]
  const toCome = migrations.filter(({ at }) => at > last)
  if (toCome.length > 0)
    return [
      warning(
        check,
        `${toCome.map(({ tag }) => tag).join(', ')} not applied yet`,
        'Start a coordinator of this version: it applies them.',
      ),
    ]
  const lacking = needed.filter((column) => !columns.has(column))
  return lacking.length === 0
    ? [ok(check, `all ${migrations.length} applied`)]
    : [problem(check, `half-migrated: ${lacking.slice(0, 3).join(', ')} is missing`, RESTORE)]
}

function shipped() {
  const { entries } = Journal.parse(readJson('meta/_journal.json'))
  const migrations = entries.map(({ when, tag }) => ({
    at: when,
    tag,
    hash: createHash('sha256')
      .update(read(`${tag}.sql`))
      .digest('hex'),
  }))
  const newest = String(entries.at(-1)?.idx).padStart(4, '0')
  const { tables } = Snapshot.parse(readJson(`meta/${newest}_snapshot.json`))
  const columns = Object.values(tables).flatMap((table) =>
    Object.keys(table.columns).map((column) => `${table.name}.${column}`),
  )
  return { migrations, columns }
}

const read = (name: string): string => readFileSync(join(FOLDER, name), 'utf8')
const readJson = (name: string): unknown => JSON.parse(read(name))
