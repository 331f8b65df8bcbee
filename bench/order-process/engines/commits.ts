import { Pool } from 'pg'
import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createSteps } from '../steps.ts'

/**
 * Runs the steps with the four commits that durability needs: one for the insert of the run, and one for the result of
 * each step. There is no lease, no attempt, no retry and no recovery. The latency is a lower bound for the latency of
 * the coordinator on this machine.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings)
  const pool = new Pool({
    connectionString: settings.databaseUrl,
    max: Math.min(40, settings.concurrency),
  })
  await pool.query(`
    create table run (id text primary key, step text not null, version int not null default 0);
    create table item (id text, step text, data jsonb, primary key (id, step))`)
  const insert = (id: string) =>
    pool.query({ name: 'insert', text: `insert into run values ($1, 'order')`, values: [id] })
  async function record<Data>(id: string, step: string, data: Data): Promise<Data> {
    await pool.query({
      name: 'record',
      text: `with moved as (update run set step = $2, version = version + 1 where id = $1)
        insert into item values ($1, $2, $3)`,
      values: [id, step, JSON.stringify(data)],
    })
    return data
  }
  return engineOfCalls({
    async run(id) {
      await insert(id)
      const order = await record(id, 'order', await steps.order(id))
      const report = await record(id, 'report', await steps.report(order))
      await record(id, 'csv', await steps.csv(id, report))
    },
    concurrency: settings.concurrency,
    close: () => pool.end(),
  })
}
