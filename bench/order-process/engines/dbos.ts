import { DBOS } from '@dbos-inc/dbos-sdk'
import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createSteps } from '../steps.ts'

/**
 * Starts each transaction as a workflow of three steps, without a DBOS queue, because a queue would add a poll and
 * a dequeue to each transaction. DBOS stores the step results in its own tables.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings)
  DBOS.setConfig({
    name: 'bench',
    systemDatabaseUrl: settings.databaseUrl,
    systemDatabasePoolSize: Math.min(40, settings.concurrency),
    logLevel: 'error',
  })
  const orderProcess = DBOS.registerWorkflow(
    async (id: string) => {
      const order = await DBOS.runStep(() => steps.order(id), { name: 'order' })
      const report = await DBOS.runStep(() => steps.report(order), { name: 'report' })
      return DBOS.runStep(() => steps.csv(id, report), { name: 'csv' })
    },
    { name: 'OrderProcess' },
  )
  await DBOS.launch()
  return engineOfCalls({
    async run(id) {
      const workflow = await DBOS.startWorkflow(orderProcess, { workflowID: id })(id)
      await workflow.getResult()
    },
    concurrency: settings.concurrency,
    close: () => DBOS.shutdown(),
  })
}
