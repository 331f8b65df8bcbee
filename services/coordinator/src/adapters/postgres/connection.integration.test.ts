import { createDatabase } from '@integration-host/postgres/test-support/database'
import { watched } from '@integration-host/postgres/test-support/watched-connection'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { connectPostgres, MIGRATION_LOCK } from './connection.ts'

const logger = createLogger('test', 'silent')

describe('a connection to the database of the coordinator', () => {
  it('a connection disables full table scans, so that statements planned for small tables still look rows up by key', async () => {
    await using database = await createDatabase()
    const health = createHealth(logger)
    const about = { name: 'test', dependency: health.dependency('postgres'), logger }
    await using connection = connectPostgres(new Secret(database.url), about)
    await eventually(() => expect(health.report().status).toBe('ready'))
    const [row] = await connection.run(
      (sql) => sql`select current_setting('enable_seqscan') as reads_whole_tables`,
    )
    expect(row).toEqual({ reads_whole_tables: 'off' })
  })

  it('the constraints that migrations add without a check of the rows are validated after the migrations', async () => {
    await using database = await createDatabase()
    await using connection = watched((about) => connectPostgres(new Secret(database.url), about))
    await connection.ready()
    const left = await database.sql`select conname from pg_constraint where not convalidated`
    expect(left).toEqual([])
  })

  it('a constraint that could not be validated, because its table was locked, is validated at the next start', async () => {
    await using database = await createDatabase()
    const { sql } = database
    const start = async (): Promise<void> => {
      await using connection = watched((about) => connectPostgres(new Secret(database.url), about))
      await connection.ready()
    }
    const left = () => sql`select conname from pg_constraint where not convalidated`
    await start()
    await sql`alter table "Order_Item" drop constraint "Order_Item_Status",
      add constraint "Order_Item_Status" check ("Status" <> '') not valid`
    await sql.begin(async (tx) => {
      await tx`lock table "Order_Item" in share update exclusive mode`
      await start()
    })
    expect(await left()).toEqual([{ conname: 'Order_Item_Status' }])
    await start()
    expect(await left()).toEqual([])
  })

  it('the pool closes at shutdown without waiting for the migration lock that another coordinator replica holds', async () => {
    await using own = await createDatabase()
    const replica = await own.sql.reserve()
    await replica`select pg_advisory_lock(${MIGRATION_LOCK})`
    const about = { name: 'test', dependency: createHealth(logger).dependency('postgres'), logger }
    const connection = connectPostgres(new Secret(own.url), about)
    await eventually(async () => {
      const waiting =
        await own.sql`select from pg_locks where locktype = 'advisory' and not granted`
      expect(waiting).toHaveLength(1)
    })
    await connection[Symbol.asyncDispose]()
    await replica`select pg_advisory_unlock(${MIGRATION_LOCK})`
    replica.release()
  })
})

describe('a coordinator with an unsupported database', () => {
  const watch = (url: string) => watched((about) => connectPostgres(new Secret(url), about))
  const RESTORE = /Restore a backup/

  it.each([
    [
      'whose tables lack a column that a recorded migration added',
      'alter table "Order_Item" rename column "Data" to "Lost"',
      'alter table "Order_Item" rename column "Lost" to "Data"',
      'half-migrated: Order_Item.Data is missing',
      RESTORE,
    ],
    [
      'whose tables are newer than the recorded migrations',
      'update drizzle.__drizzle_migrations set created_at = -created_at where id > 1',
      'update drizzle.__drizzle_migrations set created_at = -created_at where id > 1',
      'exists before its migration',
      RESTORE,
    ],
    [
      'whose record of migrations is missing',
      'alter table drizzle.__drizzle_migrations rename to away',
      'alter table drizzle.away rename to __drizzle_migrations',
      'there are tables, but no record of migrations',
      RESTORE,
    ],
    [
      'with a trigger of a migration that is not recorded',
      `delete from drizzle.__drizzle_migrations where id >= 3;
        drop function "Order_Header_join", "Order_Header_leave", "Order_Header_erase" cascade;
        drop function "Order_Family_grant";
        drop table "Order_Family", "Book_Entry", "Book_Mark", "Order_Action", "Order_Webhook", "Order_DeadLetter", "Order_Installation",
          "Order_Operation", "Order_Tag", "Order_Target", "Order_Slot", "Order_Schedule",
          "Order_Debounce", "Order_Delayed", "Order_Absorbed", "Realm_Cursor";
        alter table "Order_Header" drop "Tags" cascade, drop "InputChanged", drop "EndedAs" cascade,
          drop "EndedClass", drop "EndedInDoubt", drop "ErasedAt", drop "PurgedAt" cascade,
          drop "DefinitionVersion", drop "DeadlineAt", drop "ConcurrencyKey", drop "NotBefore" cascade,
          drop "DebounceKey", drop "Absorbed", drop "ParentProcess" cascade, drop "ParentTransactionID",
          drop "ParentReplayID", drop "ParentPlace", drop "ParentItem", drop "Priority";
        alter table "Order_Item" drop "State", drop "Round", drop "Report", drop "Ask", drop "Sender";
        alter table "Order_Attempt" drop "Method", drop "Url", drop "TraceID", drop "ResponseID";
        alter table "Order_Process" drop "PausedAt", drop "PausedBy", drop "Reason"`,
      'drop schema public cascade; drop schema drizzle cascade; create schema public',
      'half-migrated: migration 0002 cannot be applied (42723)',
      RESTORE,
    ],
    [
      'that a newer version has migrated',
      "insert into drizzle.__drizzle_migrations (id, hash, created_at) values (99, 'x', 4102444800000)",
      'delete from drizzle.__drizzle_migrations where id = 99',
      'the database was migrated by a newer version than this one',
      /Run that version or a newer one/,
    ],
  ])(
    'a database %s is left unchanged, and is reported in one log line until it is fixed',
    async (_, damage, repair, what, how) => {
      await using own = await createDatabase()
      {
        await using first = watch(own.url)
        await first.ready()
      }
      await own.sql.unsafe(damage)
      await using second = watch(own.url)
      const reason = await second.reason()
      expect(reason).toContain(what)
      expect(reason).toMatch(how)
      await own.sql.unsafe(repair)
      await second.ready()
      expect(second.waiting()).toHaveLength(1)
    },
  )

  it('a migration that does not get a lock within two seconds is rolled back and repeated', async () => {
    await using own = await createDatabase()
    {
      await using first = watch(own.url)
      await first.ready()
    }
    const other = await own.sql.reserve()
    await other.unsafe('begin; lock table drizzle.__drizzle_migrations')
    await using second = watch(own.url)
    expect(await second.reason()).toContain('(55P03)')
    await other`commit`
    other.release()
    await second.ready()
    expect(second.waiting()).toHaveLength(1)
  })
})
