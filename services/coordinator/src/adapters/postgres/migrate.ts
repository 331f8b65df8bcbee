import { fileURLToPath } from 'node:url'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import type postgres from 'postgres'

const MIGRATIONS = fileURLToPath(new URL('../../../migrations', import.meta.url))
/** Any number, the same in every replica: who holds it migrates. */
const MIGRATION_LOCK = 7_219_001

/**
 * Applies the migrations that drizzle-kit wrote, with drizzle's own bookkeeping, in one transaction.
 *
 * Replicas that start together take turns by the lock, which ends with the transaction; drizzle's migrator
 * takes none, and of three on an empty database two fail. It also loads all of drizzle's query builder,
 * 200 MB resident that nothing here uses.
 */
export async function migrate(sql: postgres.Sql): Promise<void> {
  const migrations = readMigrationFiles({ migrationsFolder: MIGRATIONS })
  await sql.begin(async (tx) => {
    // Waiting for another replica, or building an index, may take longer than a statement of daily work.
    await tx`set local statement_timeout = 0`
    await tx`select pg_advisory_xact_lock(${MIGRATION_LOCK})`
    await tx`create schema if not exists drizzle`
    await tx`create table if not exists drizzle.__drizzle_migrations (
      id serial primary key, hash text not null, created_at bigint)`
    const [last] = await tx<{ at: string }[]>`
      select created_at as at from drizzle.__drizzle_migrations order by created_at desc limit 1`
    for (const { folderMillis, hash, sql: statements } of migrations) {
      if (last !== undefined && Number(last.at) >= folderMillis) continue
      for (const statement of statements) await tx.unsafe(statement)
      await tx`insert into drizzle.__drizzle_migrations (hash, created_at) values (${hash}, ${folderMillis})`
    }
  })
}
