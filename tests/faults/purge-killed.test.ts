/**
 * Kills coordinators while they purge old runs. Another coordinator must continue the purge. Every run must be either
 * complete or fully purged, the action log must count each purged run once, and no purged run may run again.
 */
import { existsSync } from 'node:fs'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import type postgres from 'postgres'
import { describe, expect, it } from 'vitest'
import { startStepTarget } from '../support/fakes/step-target.ts'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem } from '../support/system.ts'

const RUNS = 1_500
const FIRST_BATCH = 100
const MAX_DELAY_MS = 80
// A purge pass starts every 3 s. Half a second after a kill, another coordinator may continue the pass.
const PURGING = {
  RETENTION_COMPLETED_DAYS: '0.5',
  RETENTION_FAILED_DAYS: '0',
  REMOTE_PULL_SECONDS: '0.05',
  LEASE_MS: '500',
}

/** Inserts runs that ended a day ago. Every tenth transaction has a replay. */
async function insertOldRuns(sql: postgres.Sql, prefix: string): Promise<void> {
  await sql`
    insert into "Order_Header" ("Process", "TransactionID", "ReplayID", "Status", "StepName", "InitialData",
      "Tags", "Version", "CreatedAt", "UpdatedAt", "CompletedAt", "NextAttemptAt")
    select 'OrderProcess', ${prefix} || n, replay, 'Completed', 'csv', '"secret"', '{"of": "secret"}', 7,
      now() - interval '1 day', now() - interval '1 day', now() - interval '1 day', null
    from generate_series(1, ${RUNS}::int) n, generate_series(0, (n % 10 = 0)::int) replay`
  await sql`
    insert into "Order_Item" ("Process", "TransactionID", "ReplayID", "StepName", "Status", "IdempotencyKey",
      "ResponseBody", "FinishedAt")
    select "Process", "TransactionID", "ReplayID", step, 'Completed', "TransactionID" || step, 'secret', "CompletedAt"
    from "Order_Header", unnest(array['order', 'report', 'csv']) step
    where starts_with("TransactionID", ${prefix})`
  await sql`
    insert into "Order_Attempt" ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome",
      "StartedAt", "FinishedAt")
    select "Process", "TransactionID", "ReplayID", "StepName", 1, 'completed', "FinishedAt", "FinishedAt"
    from "Order_Item" where starts_with("TransactionID", ${prefix})`
}

/** Selects the runs that are neither complete nor fully purged. */
const halfPurged = (sql: postgres.Sql) => sql`
  select "TransactionID", "ReplayID" from "Order_Header" h
  left join (select "TransactionID", "ReplayID", count(*) as items from "Order_Item" group by 1, 2) i
    using ("TransactionID", "ReplayID")
  left join (select "TransactionID", "ReplayID", count(*) as attempts from "Order_Attempt" group by 1, 2) a
    using ("TransactionID", "ReplayID")
  left join (select "TransactionID", "ReplayID", count(*) as tags from "Order_Tag" group by 1, 2) t
    using ("TransactionID", "ReplayID")
  where (h."PurgedAt" is null, h."InitialData" <> 'null', h."Tags" is not null, coalesce(items, 0),
      coalesce(attempts, 0), coalesce(tags, 0))
    not in ((true, true, true, 3, 3, 1), (false, false, false, 0, 0, 0))`

const fileOf = (folder: string, id: string, replay: number): string =>
  join(folder, `Order_${id}.${replay}.csv`)

describe('a coordinator that is killed while it purges old runs', () => {
  it(
    'another coordinator completes a purge after a kill, and no run is half purged, counted twice or run again',
    { timeout: 240_000 },
    async ({ annotate }) => {
      await using target = await startStepTarget()
      await using system = await startSystem([])
      const settings = { DEMO_API_URL: target.url, LOCAL_PULL_SECONDS: '0.2' }
      const start = async (env: Readonly<Record<string, string>>) => {
        const process = startAnotherCoordinator(
          system,
          { ...settings, ...env },
          coordinatorWithFailpoints,
        )
        return { process, url: await listeningUrl(process) }
      }
      // The first coordinator creates the tables.
      const keeping = { RETENTION_COMPLETED_DAYS: '0', RETENTION_FAILED_DAYS: '0' }
      const first = await start(keeping)
      await until(async () => (await fetch(`${first.url}/health/ready`)).ok)
      await first.process.stop('SIGTERM')
      await using database = await openDatabase(system)
      const { sql } = database
      const folder = join(system.dataDir, 'OrderCSV')
      await mkdir(folder, { recursive: true })
      const random = seededRandom()
      const kills = scale({ test: 2, faults: 10 })
      const countPurged = async (prefix = ''): Promise<number> => {
        const [row] = await sql<{ count: number }[]>`
          select count(*)::int as count from "Order_Header"
          where "PurgedAt" is not null and starts_with("TransactionID", ${prefix})`
        return row?.count ?? 0
      }

      for (let kill = 0; kill < kills; kill += 1) {
        const prefix = `r${kill}-`
        await insertOldRuns(sql, prefix)
        const runs = await sql<{ id: string; replay: number }[]>`
          select "TransactionID" as id, "ReplayID" as replay from "Order_Header"
          where starts_with("TransactionID", ${prefix})
          order by "CompletedAt", "TransactionID", "ReplayID"`
        await Promise.all(runs.map(({ id, replay }) => writeFile(fileOf(folder, id, replay), 's')))
        // A locked item blocks the purge in its second or a later batch, so each kill interrupts the purge.
        const locked = runs[FIRST_BATCH + Math.floor(random() * (runs.length - FIRST_BATCH))]?.id
        await sql.begin(async (tx) => {
          await tx`select from "Order_Item" where "TransactionID" = ${locked ?? ''} for update`
          // From the second round on, the new coordinator continues the pass that the killed coordinator has not
          // completed.
          const { process } = await start(PURGING)
          await eventually(async () => expect(await countPurged(prefix)).toBeGreaterThan(0))
          await delay(random() * MAX_DELAY_MS)
          await process.stop('SIGKILL')
          expect(await countPurged(prefix)).toBeLessThan(runs.length)
          expect(await halfPurged(sql)).toEqual([])
        })
      }

      const { process, url } = await start(PURGING)
      const all = Math.round(RUNS * 1.1) * kills
      await eventually(async () => expect(await countPurged()).toBe(all), { seconds: 120 })
      expect(await halfPurged(sql)).toEqual([])
      // The coordinator deletes the files of a batch after it has purged the runs of the batch.
      await eventually(async () => expect(await readdir(folder)).toEqual([]))
      expect(existsSync(folder)).toBe(true)

      // The action log has one entry for each pass. Together the entries count every purged run exactly once.
      await eventually(async () => {
        const [row] = await sql<{ sum: number }[]>`
          select coalesce(sum(split_part("Reason", ' ', 1)::int), 0)::int as sum from "Order_Action"
          where "Action" = 'purge'`
        expect(row?.sum).toBe(all)
      })

      // Sends late duplicates of all transactions in bulk requests, and inserts one duplicate with SQL.
      const lines = Array.from({ length: kills }, (_, kill) =>
        Array.from({ length: RUNS }, (__, n) =>
          JSON.stringify({ TransactionID: `r${kill}-${n + 1}`, InitialData: 'again' }),
        ).join('\n'),
      )
      for (const body of lines) {
        const response = await system.call(`${url}/processes/OrderProcess/transactions/bulk`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/x-ndjson' },
          body,
        })
        expect(await response.json()).toMatchObject({ queued: 0, exists: RUNS, conflicts: 0 })
      }
      const inserted = await sql`
        insert into "Order_Header" ("Process", "TransactionID", "InitialData")
        values ('OrderProcess', 'r0-1', '1') on conflict do nothing`
      expect(inserted.count).toBe(0)
      // The sweeper starts this new transaction. If a purged run were due, the sweeper would start it as well.
      await sql`
        insert into "Order_Header" ("Process", "TransactionID", "InitialData")
        values ('OrderProcess', 'new', '"new"')`
      await eventually(async () => {
        const [row] = await sql<{ status: string }[]>`
          select "Status" as status from "Order_Header" where "TransactionID" = 'new'`
        expect(row?.status).toBe('Completed')
      })
      expect(new Set(target.calls.map(({ order }) => order))).toEqual(new Set(['O-new']))
      const integrity = await system.call(`${url}/integrity`)
      expect(await integrity.json()).toMatchObject({ ok: true })
      await process.stop('SIGTERM')
      await annotate(
        `${kills} SIGKILLs during a purge: ${all} runs purged, none half, none twice`,
        'measurement',
      )
    },
  )
})
