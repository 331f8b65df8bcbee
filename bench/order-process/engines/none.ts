import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createSteps } from '../steps.ts'

/** Nothing is kept: what the work of the steps alone costs, so the ceiling of every engine. */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings)
  return engineOfCalls({
    run: async (id) => steps.csv(id, await steps.report(await steps.order(id))),
    concurrency: settings.concurrency,
    close: async () => {},
  })
}
