import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { Pool } from 'pg'
import { Completions, engineOfQueue, type StartEngine } from '../engine.ts'
import { createSteps, type Order, type Report } from '../steps.ts'

/**
 * Runs each step as a separate job. A single SQL statement, and therefore one transaction, stores the result of a
 * step and adds the next job. The worker is tuned for throughput as its manual advises: with a local queue and with
 * completions in batches.
 */
export const start: StartEngine = async (settings) => {
  const { concurrency } = settings
  const steps = createSteps(settings)
  const completions = new Completions()
  const pool = new Pool({ connectionString: settings.databaseUrl, max: Math.min(40, concurrency) })
  pool.on('error', (error) => console.error(error))
  pool.on('connect', (client) => client.on('error', (error) => console.error(error)))
  const logger = new Logger(() => (level, message) => {
    if (level === 'error') console.error(message)
  })
  const utils = await makeWorkerUtils({ pgPool: pool, logger })
  await utils.migrate()
  await pool.query(`create table step_result
    (id text, step text, result jsonb, primary key (id, step))`)

  const store = (id: string, step: string, result: unknown) =>
    pool.query({
      name: 'store',
      text: 'insert into step_result values ($1, $2, $3) on conflict do nothing',
      values: [id, step, JSON.stringify(result)],
    })
  const storeAndAdd = (id: string, step: string, result: unknown, next: string) =>
    pool.query({
      name: 'store and add',
      text: `with stored as (insert into step_result values ($1, $2, $3) on conflict do nothing)
        select graphile_worker.add_job($4, $5::json)`,
      values: [id, step, JSON.stringify(result), next, JSON.stringify({ id, result })],
    })

  const runner = await run({
    pgPool: pool,
    concurrency,
    noHandleSignals: true,
    logger,
    preset: {
      worker: {
        localQueue: { size: concurrency * 2 },
        completeJobBatchDelay: 5,
        failJobBatchDelay: 5,
      },
    },
    taskList: {
      async order(payload) {
        const { id } = payload as { id: string }
        await storeAndAdd(id, 'order', await steps.order(id), 'report')
      },
      async report(payload) {
        const { id, result } = payload as { id: string; result: Order }
        await storeAndAdd(id, 'report', await steps.report(result), 'csv')
      },
      async csv(payload) {
        const { id, result } = payload as { id: string; result: Report }
        await store(id, 'csv', await steps.csv(id, result))
        completions.completed(id)
      },
    },
  })
  return engineOfQueue({
    queue: (ids) => utils.addJobs(ids.map((id) => ({ identifier: 'order', payload: { id } }))),
    completions,
    async close() {
      await runner.stop()
      await pool.end()
    },
  })
}
