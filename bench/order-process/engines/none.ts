import { engineOfCalls, type StartEngine } from '../engine.ts'
import { createSteps } from '../steps.ts'
import { coordinatorTools } from '../tools.ts'

/** Runs the steps without durability. The rate is an upper bound for every engine. */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings, coordinatorTools())
  return engineOfCalls({
    run: async (id) => steps.csv(id, await steps.report(await steps.order(id))),
    concurrency: settings.concurrency,
    close: async () => {},
  })
}
