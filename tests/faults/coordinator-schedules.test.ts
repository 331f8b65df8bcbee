import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { until } from '@integration-host/shared/test-support/eventually'
import postgres from 'postgres'
import { expect, it } from 'vitest'
import { startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { startSystem } from '../support/system.ts'

const PROCESSES = fileURLToPath(new URL('../support/faults/schedules', import.meta.url))
const env = { PROCESSES, LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }
const SCHEDULES = 60
/** The number of schedules whose next times are moved into the past in each round. */
const GROUP = 5
const MISSED_MINUTES = 60

/**
 * In each round, the next times of some schedules are moved an hour into the past. One of three coordinators is killed
 * while it queues the runs of these missed times. Meanwhile all sixty schedules fire every minute. The long run lasts
 * at least ten minutes, in which the schedules fire 600 times.
 */
it(
  'each scheduled time starts one run although coordinators are killed while the schedules fire',
  { timeout: scale({ test: 240_000, faults: 420_000, long: 1_200_000 }) },
  async ({ annotate }) => {
    const random = seededRandom()
    await using system = await startSystem([])
    const sql = postgres(system.databaseUrl, { max: 2, onnotice: () => {} })
    await using stack = new AsyncDisposableStack()
    stack.defer(() => sql.end())
    const start = () => startAnotherCoordinator(system, env)
    const coordinators = [start(), start(), start()]
    const declared = async (): Promise<boolean> => {
      const found = await sql`select 1 from "Order_Schedule"`.catch(() => [])
      return found.length === SCHEDULES
    }
    await until(declared, { seconds: 60 })

    /** Maps each schedule to the earliest scheduled time for which a run must exist. */
    const first = new Map<string, Date>()
    const lasts = scale({ test: 0, faults: 60_000, long: 600_000 })
    const startedAt = performance.now()
    let kills = 0
    for (
      let round = 0;
      round * GROUP < SCHEDULES || performance.now() - startedAt < lasts;
      round += 1
    ) {
      const names = Array.from({ length: GROUP }, (_, n) => `s${round * GROUP + n}`)
      const moved = await sql<{ name: string; from: Date }[]>`
        update "Order_Schedule" set "NextAt" = "NextAt" - ${MISSED_MINUTES} * interval '1 minute'
        where "Name" in ${sql(names)} returning "Name" as name, "NextAt" as from`
      for (const { name, from } of moved) first.set(name, from)
      const queued = async (): Promise<boolean> => {
        const [row] = await sql<{ n: number }[]>`
          select count(*)::int as n from "Order_Header"
          where split_part("TransactionID", '@', 1) in ${sql(names)}`
        return (row?.n ?? 0) > MISSED_MINUTES / 2
      }
      if (moved.length > 0) await until(queued, { seconds: 60 })
      else await sleep(1_000)
      const [killed] = coordinators.splice(Math.floor(random() * coordinators.length), 1)
      await killed?.stop('SIGKILL')
      kills += 1
      coordinators.push(start())
    }

    const isDone = async (): Promise<boolean> => {
      const [row] = await sql<{ late: number; unfinished: number }[]>`
        select (select count(*)::int from "Order_Schedule" where "NextAt" <= now()) as late,
          (select count(*)::int from "Order_Header" where "CompletedAt" is null) as unfinished`
      return row?.late === 0 && row.unfinished === 0
    }
    await until(isDone, { seconds: 120 })
    // There must be one run for every minute from the first missed time to the next time, and no other run.
    const [result] = await sql<
      { expected: number; missing: number; foreign: number; runs: number }[]
    >`
      with expected as (
        select s."Name" || '@' || to_char(t at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as id
        from jsonb_to_recordset(${JSON.stringify([...first].map(([name, from]) => ({ name, from })))}::text::jsonb)
            as f(name text, "from" timestamptz)
          join "Order_Schedule" s on s."Name" = f.name
          cross join lateral generate_series(f."from", s."NextAt" - interval '1 minute', interval '1 minute') t
      )
      select (select count(*)::int from expected) as expected,
        (select count(*)::int from expected e where not exists (
          select from "Order_Header" h where h."TransactionID" = e.id)) as missing,
        (select count(*)::int from "Order_Header" h where not exists (
          select from expected e where e.id = h."TransactionID")) as foreign,
        (select count(*)::int from "Order_Header") as runs`
    expect(result).toMatchObject({ missing: 0, foreign: 0, runs: result?.expected })
    expect(result?.runs).toBeGreaterThanOrEqual(SCHEDULES * MISSED_MINUTES)
    const statuses = await sql<{ status: string; replay: number }[]>`
      select distinct "Status" as status, "ReplayID" as replay from "Order_Header"`
    expect(statuses.map((row) => ({ ...row }))).toEqual([{ status: 'Completed', replay: 0 }])
    await annotate(
      `${result?.runs} times of ${SCHEDULES} schedules, ${kills} SIGKILLs of coordinators: one run for each time`,
      'measurement',
    )
  },
)
