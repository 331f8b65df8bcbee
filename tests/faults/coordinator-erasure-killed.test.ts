/**
 * Kills the coordinator at a random moment during an erasure. The same request to another coordinator must erase the
 * remaining runs and all files. Each run is erased once and has one entry in the action log.
 */
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { describe, expect, it } from 'vitest'
import { readyUrl, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { startSystem, type System } from '../support/system.ts'

const ROUNDS = scale({ test: 2, faults: 10, long: 30 })
const RUNS = 1_000
/** The number of runs that an erasure reads in one batch. */
const PAGE = 200
const MARKER = 'personal data'

interface Erased {
  readonly erased: number
  readonly more: boolean
  readonly notEnded: number
}

/** Inserts ended runs with items, attempts, tags and files, which all contain the marker. */
async function insertRuns(system: System, { sql }: DatabaseAssertions, realm: string) {
  const data = JSON.stringify({ note: MARKER })
  await sql`
    insert into "Order_Header" ("Process", "TransactionID", "StepName", "InitialData", "Realm", "Status",
      "LastError", "ErrorClass", "CompletedAt", "NextAttemptAt", "Tags")
    select 'OrderProcess', ${realm} || '-' || n, 'order', ${data}::text::jsonb, ${realm}, 'Failed',
      ${MARKER}, 'http_400', now(), null, ${data}::text::jsonb
    from generate_series(1, ${RUNS}) n`
  await sql`
    insert into "Order_Item" ("Process", "TransactionID", "ReplayID", "StepName", "Status", "IdempotencyKey",
      "ResponseBody", "Data", "Error")
    select "Process", "TransactionID", "ReplayID", 'order', 'Failed', "TransactionID", ${MARKER},
      ${data}::text::jsonb, ${MARKER} from "Order_Header" where "Realm" = ${realm}`
  await sql`
    insert into "Order_Attempt" ("Process", "TransactionID", "ReplayID", "StepName", "Attempt", "Outcome",
      "Error", "Method", "Url", "StartedAt")
    select "Process", "TransactionID", "ReplayID", 'order', 1, 'http_400', ${MARKER}, 'GET', ${MARKER}, now()
    from "Order_Header" where "Realm" = ${realm}`
  const folder = join(system.dataDir, 'OrderCSV')
  await mkdir(folder, { recursive: true })
  for (let n = 1; n <= RUNS; n += 1)
    await writeFile(join(folder, `Order_${realm}-${n}.0.csv`), MARKER)
}

/** Returns how many runs are erased, and how many rows still contain the marker. */
async function countRuns({ sql }: DatabaseAssertions) {
  const like = `%${MARKER}%`
  const [counts] = await sql<{ erased: number; entries: number; marked: number }[]>`
    select (select count(*) from "Order_Header" where "ErasedAt" is not null)::int as erased,
      (select count(distinct "TransactionID") from "Order_Action" where "Action" = 'erase')::int as entries,
      ((select count(*) from "Order_Header" t where t::text like ${like})
        + (select count(*) from "Order_Item" t where t::text like ${like})
        + (select count(*) from "Order_Attempt" t where t::text like ${like})
        + (select count(*) from "Order_Tag" t where t::text like ${like}))::int as marked`
  if (counts === undefined) throw new Error('no counts')
  return counts
}

describe('a coordinator that is killed during an erasure', () => {
  it(
    'if a coordinator was killed during an erasure, a repeated request erases and logs each remaining run once',
    { timeout: 60_000 + ROUNDS * 30_000 },
    async ({ annotate }) => {
      const random = seededRandom()
      await using system = await startSystem([])
      await using stack = new AsyncDisposableStack()
      const start = async () => {
        const process = startAnotherCoordinator(system, {}, coordinatorWithFailpoints)
        const url = await readyUrl(process)
        return { process, url }
      }
      const erase = async (url: string, realm: string): Promise<Erased> => {
        const response = await system.call(
          `${url}/erasures`,
          postJson({ Realm: realm, Reason: 'a test' }),
        )
        if (!response.ok) throw new Error(`POST /erasures responded with ${response.status}`)
        return (await response.json()) as Erased
      }
      let { process, url } = await start()
      const database = stack.use(await openDatabase(system))
      const folder = join(system.dataDir, 'OrderCSV')
      for (let round = 0; round < ROUNDS; round += 1) {
        const realm = `r${round}`
        await insertRuns(system, database, realm)
        const before = (await countRuns(database)).erased
        const erased = await database.sql.begin(async (tx) => {
          // A locked run blocks the erasure in its second or a later batch, so each kill interrupts the erasure.
          const offset = PAGE + Math.floor(random() * (RUNS - PAGE))
          await tx`
            select from "Order_Header" where "TransactionID" = (
              select "TransactionID" from "Order_Header" where "Realm" = ${realm}
              order by "TransactionID" limit 1 offset ${offset}) for update`
          const interrupted = erase(url, realm).catch(() => null)
          await eventually(async () =>
            expect((await countRuns(database)).erased).toBeGreaterThan(before),
          )
          await sleep(random() * 50)
          process.signal('SIGKILL')
          await process.ended
          expect(await interrupted).toBeNull()
          return (await countRuns(database)).erased - before
        })
        expect(erased).toBeLessThan(RUNS)
        ;({ process, url } = await start())
        const rest = await erase(url, realm)
        // PostgreSQL may have completed the statement of the killed coordinator after the rows were counted.
        expect(rest.erased).toBeLessThanOrEqual(RUNS - erased)
        expect(rest).toMatchObject({ more: false, notEnded: 0 })
        const total = (round + 1) * RUNS
        expect(await countRuns(database)).toEqual({ erased: total, entries: total, marked: 0 })
        expect(await readdir(folder)).toEqual([])
      }
      const [row] = await database.sql<{ n: number }[]>`
        select count(*)::int as n from "Order_Action" where "Action" = 'erase'`
      expect(row?.n).toBe(ROUNDS * RUNS)
      const integrity = (await (await system.call(`${url}/integrity`)).json()) as { ok: boolean }
      expect(integrity.ok).toBe(true)
      process.signal('SIGKILL')
      await process.ended
      await annotate(`${ROUNDS} kills, each with a part of ${RUNS} runs erased`, 'measurement')
    },
  )
})
