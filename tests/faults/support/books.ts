import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  deadQueue,
  delayName,
  delays,
  stepQueue,
} from '@integration-host/shared/contracts/step-message'
import { connect } from 'amqplib'
import postgres from 'postgres'
import { expect } from 'vitest'
import { backend, type System } from '../../support/system.ts'
import type { Target } from './target.ts'

const STEPS = ['order', 'report', 'csv'] as const

/** The rows and queues of a system, read past its services: what they say of themselves proves nothing. */
export interface Books extends AsyncDisposable {
  readonly sql: postgres.Sql
  /** Runs that are there, and those that are completed. */
  count(): Promise<{ headers: number; completed: number }>
  /** Messages ready in every queue of the system, by queue; those without any are left out. */
  waiting(): Promise<Record<string, number>>
  /** What lies in the dead queue, each with the reason: the coordinator's own, or the broker's. */
  deadLetters(): Promise<string[]>
  /** How many consume the queue of the first step. */
  consumers(): Promise<number>
  /** Moves the time on to where every lease has run out and every run is due for a pull. */
  passTime(): Promise<void>
  /** Takes away what is ready in the queue of a step, as a broker that loses its disk does. */
  loseMessages(step: (typeof STEPS)[number]): Promise<number>
  /**
   * Compares rows, calls and files when all is done. Fails unless each of `ids` ran once, step by step, and
   * each call was made once more at most for every worker that died in it, always under the same key.
   */
  balance(ids: readonly string[], target: Target): Promise<Balance>
}

/** What a balanced system still has to tell. */
export interface Balance {
  /** Attempts whose worker was lost. */
  readonly inDoubt: number
  /** Calls that were made again. */
  readonly repeatedCalls: number
}

export async function openBooks(system: System): Promise<Books> {
  const sql = postgres(system.databaseUrl, { max: 2, onnotice: () => {} })
  const queues = [
    ...STEPS.map((step) => stepQueue('OrderProcess', step)),
    deadQueue('OrderProcess'),
    ...delays.map(({ name }) => delayName(name)),
  ]
  // A connection for each look: the broker may have been away since the last one.
  async function onChannel<Result>(
    look: (
      channel: Awaited<ReturnType<Awaited<ReturnType<typeof connect>>['createChannel']>>,
    ) => Promise<Result>,
  ): Promise<Result> {
    const connection = await connect(backend('TEST_AMQP_URL'))
    connection.on('error', () => {})
    try {
      return await look(await connection.createChannel())
    } finally {
      await connection.close()
    }
  }
  const books: Books = {
    sql,
    async count() {
      const [row] = await sql<{ headers: number; completed: number }[]>`
        select count(*)::int as headers,
          (count(*) filter (where "Status" = 'Completed'))::int as completed
        from "Order_Header"`
      return { headers: row?.headers ?? 0, completed: row?.completed ?? 0 }
    },
    waiting: () =>
      onChannel(async (channel) => {
        const found: Record<string, number> = {}
        for (const queue of queues) {
          const { messageCount } = await channel.checkQueue(system.amqpPrefix + queue)
          if (messageCount > 0) found[queue] = messageCount
        }
        return found
      }),
    deadLetters: () =>
      onChannel(async (channel) => {
        const found: string[] = []
        for (;;) {
          // Not acknowledged: they stay there.
          const message = await channel.get(system.amqpPrefix + deadQueue('OrderProcess'))
          if (message === false) return found
          const { messageId, headers } = message.properties
          const reason = headers?.['reason'] ?? headers?.['x-first-death-reason']
          found.push(
            `${messageId}: ${reason} ${message.content.toString()} ${JSON.stringify(headers)}`,
          )
        }
      }),
    consumers: () =>
      onChannel(
        async (channel) =>
          (await channel.checkQueue(system.amqpPrefix + stepQueue('OrderProcess', 'order')))
            .consumerCount,
      ),
    async passTime() {
      await sql`
        update "Order_Header" set "NextSweepAt" = now(),
          "LeaseUntil" = case when "LeaseUntil" is null then null else now() end
        where "Status" in ('Queued', 'Running')`
    },
    loseMessages: (step) =>
      onChannel(
        async (channel) =>
          (await channel.purgeQueue(system.amqpPrefix + stepQueue('OrderProcess', step)))
            .messageCount,
      ),
    async balance(ids, target) {
      await expectRows(sql, ids)
      await expectFiles(join(system.dataDir, 'OrderCSV'), ids)
      return expectCalls(sql, ids, target)
    },
    [Symbol.asyncDispose]: () => sql.end({ timeout: 1 }),
  }
  return books
}

/** One header, one item of each step, one recorded result of each: nothing lost, nothing twice. */
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

/** Every file whole: its header, its row, and nothing else. */
async function expectFiles(folder: string, ids: readonly string[]): Promise<void> {
  // What a killed worker had begun stays beside it under another name; nobody takes it for a file.
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
  target: Target,
): Promise<Balance> {
  const attempts = await sql<{ id: string; step: string; outcome: string; error: string | null }[]>`
    select "TransactionID" as id, "StepName" as step, "Outcome" as outcome, "Error" as error
    from "Order_Attempt"
    where "Outcome" <> 'completed'`
  // The target never fails: an attempt without a result is one whose worker was lost.
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
      const again = calls.length - 1
      expect(again, `calls of ${id} ${step}`).toBeGreaterThanOrEqual(0)
      expect(again, `repeated calls of ${id} ${step}`).toBeLessThanOrEqual(
        lost.get(`${id} ${step}`)?.length ?? 0,
      )
      expect(new Set(calls.map(({ idempotencyKey }) => idempotencyKey))).toEqual(
        new Set([`OrderProcess/${id}/0/${step}`]),
      )
      repeatedCalls += again
    }
  return { inDoubt: attempts.length, repeatedCalls }
}
