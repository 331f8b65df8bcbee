import { Pool } from 'pg'
import { PgBoss } from 'pg-boss'
import { Completions, engineOfQueue, type StartEngine } from '../engine.ts'
import { createSteps, type Order, type Report } from '../steps.ts'

const STEPS = ['order', 'report', 'csv'] as const
/** The number of workers per queue. They divide the concurrency equally: each worker fetches its part in one batch. */
const FETCHERS = 2

interface Job {
  readonly id: string
  readonly order?: Order
  readonly report?: Report
}

/**
 * Runs each step as a separate job, with one queue for each step. One transaction stores the results of a batch
 * of jobs and adds the next jobs. Therefore one failed job makes its whole batch run again, unlike with the other
 * engines. pg-boss is tuned for throughput: jobs are fetched in batches, NOTIFY wakes the workers, a worker fetches
 * again at once after a full batch, and pg-boss's maintenance is disabled.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings)
  const completions = new Completions()
  const pool = new Pool({ connectionString: settings.databaseUrl, max: 16 })
  await pool.query(`create table step_result
    (id text, step text, result jsonb, primary key (id, step))`)
  const boss = new PgBoss({
    connectionString: settings.databaseUrl,
    max: 24,
    useListenNotify: true,
    supervise: false,
    schedule: false,
  })
  boss.on('error', (error) => console.error(error))
  await boss.start()
  for (const step of STEPS) await boss.createQueue(step, { notify: true })

  /** For each step, the function that returns its result and the data of the next job. */
  const work: Record<
    (typeof STEPS)[number],
    (job: Job) => Promise<{ result: unknown; data: Job }>
  > = {
    async order({ id }) {
      const order = await steps.order(id)
      return { result: order, data: { id, order } }
    },
    async report({ id, order }) {
      const report = await steps.report(order as Order)
      return { result: report, data: { id, report } }
    },
    csv: async ({ id, report }) => ({
      result: await steps.csv(id, report as Report),
      data: { id },
    }),
  }
  const batchSize = Math.ceil(settings.concurrency / FETCHERS)
  for (const [index, step] of STEPS.entries()) {
    const next = STEPS[index + 1]
    const options = {
      batchSize,
      localConcurrency: FETCHERS,
      pollingIntervalSeconds: 0.5,
      notifyPollingIntervalSeconds: 0.5,
      burstWhenBatchFull: true,
    }
    await boss.work<Job>(step, options, async (batch) => {
      const done = await Promise.all(batch.map(({ data }) => work[step](data)))
      const insert = {
        text: `insert into step_result select * from unnest($1::text[], $2::text[], $3::jsonb[])
          on conflict do nothing`,
        values: [
          done.map(({ data }) => data.id),
          done.map(() => step),
          done.map(({ result }) => JSON.stringify(result)),
        ],
      }
      if (next === undefined) {
        await pool.query(insert)
        for (const { data } of done) completions.completed(data.id)
        return
      }
      const client = await pool.connect()
      try {
        await client.query('begin')
        await client.query(insert)
        await boss.insert(
          next,
          done.map(({ data }) => ({ data })),
          {
            db: { executeSql: (text, values) => client.query(text, values as unknown[]) },
          },
        )
        await client.query('commit')
      } catch (error) {
        await client.query('rollback')
        throw error
      } finally {
        client.release()
      }
    })
  }
  return engineOfQueue({
    queue: (ids) =>
      boss.insert(
        'order',
        ids.map((id) => ({ data: { id } })),
      ),
    completions,
    async close() {
      await boss.stop({ graceful: false })
      await pool.end()
    },
  })
}
