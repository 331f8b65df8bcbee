import {
  connectPostgres as connect,
  type PostgresConnection,
  type PostgresOptions,
} from '@integration-host/postgres/connection'
import { UnsupportedBackend, throwOnProblem } from '@integration-host/shared/observability/checks'
import {
  checkMigrations,
  halfMigrated,
  readMigrations,
  readMigrationState,
} from '@integration-host/postgres/migrations'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { fileURLToPath } from 'node:url'
import type postgres from 'postgres'

/**
 * Disables full scans, and joins that need full scans. PostgreSQL plans a prepared statement while the tables are small
 * and keeps that plan after they have grown. With full scans enabled, every transaction could then scan a whole table,
 * although every statement can find its rows by an index.
 */
const LOOKUP_BY_KEY = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  // While full scans are disabled, an unavoidable full scan has such a high cost estimate that PostgreSQL would spend
  // time on JIT compilation.
  jit: 'off',
}

/** Connects to the coordinator's database in the background, and creates or migrates its tables first. */
export const connectPostgres = (
  url: Secret,
  options: Omit<PostgresOptions, 'migrate' | 'session'>,
): PostgresConnection => connect(url, { ...options, migrate, session: LOOKUP_BY_KEY })

const MIGRATIONS = {
  folder: fileURLToPath(new URL('../../../migrations', import.meta.url)),
  appliedBy: 'coordinator',
}
/**
 * The key of the advisory lock. It is the same in every replica, so only one replica at a time applies the
 * migrations.
 */
export const MIGRATION_LOCK = 7_219_001

/**
 * Applies the migrations that drizzle-kit has generated, and records them in drizzle's own table, all in one
 * transaction.
 *
 * An advisory lock, which is held until the transaction ends, serializes replicas that start together. Drizzle's own
 * migrator is not used, because it takes no lock: if three replicas started on an empty database, two of them would
 * fail. Nothing of drizzle is loaded, so the image and the package do not contain it.
 *
 * @throws {UnsupportedBackend} if the database is partly migrated, or was migrated by a newer version. The database is
 *   then not changed.
 */
async function migrate(sql: postgres.Sql): Promise<void> {
  const migrations = readMigrations(MIGRATIONS.folder)
  await sql.begin(async (tx) => {
    // The migration has no time limit, because building an index, or waiting for another replica, may take long.
    await tx`set local statement_timeout = 0`
    await tx`set local lock_timeout = 0`
    await tx`select pg_advisory_xact_lock(${MIGRATION_LOCK})`
    // While the migration waits for the lock of a table, the statements of other replicas wait behind it. If another
    // program holds the lock for longer, the migration is rolled back, these statements run, and the caller repeats the
    // migration. Autovacuum releases its lock after `deadlock_timeout` (1 s).
    await tx`set local lock_timeout = '2s'`
    await tx`create schema if not exists drizzle`
    await tx`create table if not exists drizzle.__drizzle_migrations (
      id serial primary key, hash text not null, created_at bigint)`
    const state = await readMigrationState(tx)
    throwOnProblem(checkMigrations(MIGRATIONS, state))
    const last = state.applied?.at(-1)?.at ?? -1
    for (const [index, { at, hash, statements }] of migrations.entries()) {
      if (last >= at) continue
      try {
        for (const statement of statements) await tx.unsafe(statement)
      } catch (error) {
        if (!isAgainstRule(error)) throw error
        throw new UnsupportedBackend(
          halfMigrated(
            `migration ${String(index).padStart(4, '0')} cannot be applied (${error.code})`,
            MIGRATIONS.appliedBy,
          ),
          { cause: error },
        )
      }
      await tx`insert into drizzle.__drizzle_migrations (hash, created_at) values (${hash}, ${at})`
    }
  })
  await validateConstraints(sql)
}

const LOCK_NOT_AVAILABLE = '55P03'

/**
 * Checks the rows against the constraints that migrations have added without a check. Other statements go on meanwhile,
 * because the lock of a validation excludes only other changes of the table's definition and vacuum. A constraint whose
 * lock is not free stays for the next start, since new rows already satisfy it.
 */
async function validateConstraints(sql: postgres.Sql): Promise<void> {
  const constraints = await sql<{ table: string; name: string }[]>`
    select conrelid::regclass::text as table, quote_ident(conname) as name
    from pg_constraint where not convalidated and connamespace = current_schema()::regnamespace
      and starts_with(conname, 'Order_')`
  for (const { table, name } of constraints)
    await sql
      .begin(async (tx) => {
        await tx`set local statement_timeout = 0`
        await tx`set local lock_timeout = '2s'`
        await tx.unsafe(`alter table ${table} validate constraint ${name}`)
      })
      .catch((error: unknown) => {
        if ((error as { code?: unknown } | null)?.code !== LOCK_NOT_AVAILABLE) throw error
      })
}

/**
 * SQLSTATE class 42 except 42501 means that an object that the statement needs is missing, or that an object that it
 * creates already exists.
 */
const isAgainstRule = (error: unknown): error is { readonly code: string } =>
  /^42(?!501)/.test(String((error as { code?: unknown } | null)?.code))
