import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import postgres from 'postgres'
import { expect } from 'vitest'
import type { StepTarget } from '../fakes/step-target.ts'
import type { System } from '../system.ts'
import { STEPS } from './step-queues.ts'

/** Reads the rows of a system directly from the database. A report of the services could hide an inconsistency. */
export interface DatabaseAssertions extends AsyncDisposable {
  readonly sql: postgres.Sql
  /** Returns the number of all runs and the number of completed runs. */
  countRuns(): Promise<{ runs: number; completed: number }>
  /** Makes every lease expire now, and makes every active run due for the sweeper now. */
  expireLeases(): Promise<void>
  /**
   * Compares rows, calls and files after all runs have completed. Fails unless each transaction in `ids` has run each
   * step once and no message was dead-lettered. A call may be repeated only with the same idempotency key, and at
   * most once for every worker that died during the call.
   */
  expectConsistent(ids: readonly string[], target: StepTarget): Promise<FaultCounts>
}

/** The amount of work that was repeated because of faults. The repeated work has caused no inconsistency. */
export interface FaultCounts {
  /** Number of attempts without a result, because their worker died. */
  readonly inDoubt: number
  readonly repeatedCalls: number
}

export async function openDatabase(system: System): Promise<DatabaseAssertions> {
  const sql = postgres(system.databaseUrl, { max: 2, onnotice: () => {} })
  return {
    sql,
    async countRuns() {
      const [row] = await sql<{ runs: number; completed: number }[]>`
        select count(*)::int as runs,
          (count(*) filter (where "Status" = 'Completed'))::int as completed
        from "Order_Header"`
      return { runs: row?.runs ?? 0, completed: row?.completed ?? 0 }
    },
    async expireLeases() {
      await sql`
        update "Order_Header" set "NextSweepAt" = now(),
          "LeaseUntil" = case when "LeaseUntil" is null then null else now() end
        where "Status" in ('Queued', 'Running')`
    },
    async expectConsistent(ids, target) {
      await expectRows(sql, ids)
      expect(await deadLettersOf(sql)).toEqual([])
      await expectFiles(join(system.dataDir, 'OrderCSV'), ids)
      return expectCalls(sql, ids, target)
    },
    [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }),
  }
}

/** Returns the reason and content of each dead letter. */
async function deadLettersOf(sql: postgres.Sql): Promise<readonly string[]> {
  const rows = await sql<{ reason: string; id: string; content: Buffer }[]>`
    select "Reason" as reason, "MessageID" as id, "Content" as content from "Order_DeadLetter"`
  return rows.map(({ reason, id, content }) => `${id}: ${reason} ${content.toString()}`)
}

/**
 * Checks that no row is lost or duplicated: each id has one header, and one item and one recorded result for each
 * step.
 */
async function expectRows(sql: postgres.Sql, ids: readonly string[]): Promise<void> {
  const headers = await sql<{ id: string; status: string; version: number }[]>`
    select "TransactionID" as id, "Status" as status, "Version" as version from "Order_Header"`
  expect(headers.map(({ id }) => id).toSorted()).toEqual([...ids].toSorted())
  expect(headers.filter(({ status }) => status !== 'Completed')).toEqual([])
  const results = await sql<{ id: string; items: string[]; recorded: string[] }[]>`
    select "TransactionID" as id,
      (select array_agg("StepName" order by "StepName") from "Order_Item" i
        where i."TransactionID" = h."TransactionID" and "Status" = 'Completed') as items,
      (select array_agg("StepName" order by "StepName") from "Order_Attempt" a
        where a."TransactionID" = h."TransactionID" and "Outcome" = 'completed') as recorded
    from "Order_Header" h`
  const each = JSON.stringify(STEPS.toSorted())
  const wrong = results.filter(
    ({ items, recorded }) => JSON.stringify(items) !== each || JSON.stringify(recorded) !== each,
  )
  expect(wrong).toEqual([])
}

/** Checks that each id has one complete file, which contains only the CSV header and one row. */
async function expectFiles(folder: string, ids: readonly string[]): Promise<void> {
  // A killed worker may leave a temporary file. The name of a temporary file does not end in `.csv`.
  const files = (await readdir(folder)).filter((file) => file.endsWith('.csv'))
  expect(files.toSorted()).toEqual(ids.map((id) => `Order_${id}.0.csv`).toSorted())
  for (const id of ids) {
    const content = await readFile(join(folder, `Order_${id}.0.csv`), 'utf8')
    expect(content).toMatch(/^Order,CreatedAt,Status\nO-[^,\n]+,[^,\n]+,Confirmed\n$/)
    expect(content).toContain(`\nO-${id},`)
  }
}

async function expectCalls(
  sql: postgres.Sql,
  ids: readonly string[],
  target: StepTarget,
): Promise<FaultCounts> {
  const attempts = await sql<{ id: string; step: string; outcome: string; error: string | null }[]>`
    select "TransactionID" as id, "StepName" as step, "Outcome" as outcome, "Error" as error
    from "Order_Attempt"
    where "Outcome" <> 'completed'`
  // The target never fails, so an attempt without a result shows that its worker has died.
  expect(attempts.filter(({ outcome }) => outcome !== 'in_doubt')).toEqual([])
  const made = Map.groupBy(
    target.calls,
    ({ path, order }) => `${order.replace(/^O-/, '')} ${path.slice(1)}`,
  )
  const lost = Map.groupBy(attempts, ({ id, step }) => `${id} ${step}`)
  let repeatedCalls = 0
  for (const id of ids)
    for (const step of ['order', 'report']) {
      const calls = made.get(`${id} ${step}`) ?? []
      const repeated = calls.length - 1
      expect(repeated, `calls of ${id} ${step}`).toBeGreaterThanOrEqual(0)
      expect(repeated, `repeated calls of ${id} ${step}`).toBeLessThanOrEqual(
        lost.get(`${id} ${step}`)?.length ?? 0,
      )
      expect(new Set(calls.map(({ idempotencyKey }) => idempotencyKey))).toEqual(
        new Set([`OrderProcess/${id}/0/${step}`]),
      )
      repeatedCalls += repeated
    }
  return { inDoubt: attempts.length, repeatedCalls }
}
