import { engineOfCalls, type StartEngine } from '../engine.ts'
import { openRunTables } from '../run-tables.ts'
import { createSteps } from '../steps.ts'
import { coordinatorTools } from '../tools.ts'

/**
 * Runs the steps with the four commits that durability needs: one for the insert of the run, and one for the result of
 * each step. As in the coordinator, one commit may contain several transactions. There is no lease, no attempt, no retry
 * and no recovery. The result is a bound for the coordinator with inline dispatch on this machine: a lower bound for its
 * latency and an upper bound for its rate.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings, coordinatorTools())
  const tables = await openRunTables(settings)
  async function record<Data>(id: string, step: string, data: Data): Promise<Data> {
    await tables.record({ id, step, data })
    return data
  }
  return engineOfCalls({
    async run(id) {
      await tables.insert(id)
      const order = await record(id, 'order', await steps.order(id))
      const report = await record(id, 'report', await steps.report(order))
      await record(id, 'csv', await steps.csv(id, report))
    },
    concurrency: settings.concurrency,
    close: async () => tables[Symbol.asyncDispose](),
  })
}
