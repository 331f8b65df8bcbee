import { randomUUID } from 'node:crypto'
import {
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
} from '@integration-host/shared/contracts/topology'
import { Completions, engineOfQueue, type StartEngine } from '../engine.ts'
import { openRunTables } from '../run-tables.ts'
import { openStepBus } from '../step-bus.ts'
import { createSteps, type Order, type Report } from '../steps.ts'
import { coordinatorTools } from '../tools.ts'

const PROCESS = 'OrderProcess'
const STEPS = ['order', 'report', 'csv'] as const
type Step = (typeof STEPS)[number]

/**
 * Runs the steps with the same commits and confirmed messages as the coordinator. A message on a quorum queue starts each
 * step, or only the first one with the variant `inline`. The commits are the insert of the run, the claim that follows
 * each message, and the result of each step. There is no lease, no attempt, no retry and no recovery, and the results stay
 * in memory. As in the coordinator, one commit may contain several transactions.
 *
 * With a message per step, the latency is the lower bound for every engine that sends one. With the variant `inline`, the
 * rate is the upper bound for the coordinator's inline dispatch at full load, where most runs start with a message because
 * the capacity for starting on arrival is used up.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings, coordinatorTools())
  const completions = new Completions()
  const results = new Map<string, unknown>()
  const tables = await openRunTables(settings)
  const bus = await openStepBus(settings, PROCESS, STEPS)

  const publish = (id: string, step: Step): Promise<void> =>
    bus.publish({
      exchange: STEPS_EXCHANGE,
      routingKey: stepRoutingKey(PROCESS, step),
      messageId: randomUUID(),
      type: 'step',
      body: { id },
      mandatory: true,
    })
  const work: Record<Step, (id: string) => Promise<unknown>> = {
    order: (id) => steps.order(id),
    report: (id) => steps.report(results.get(id) as Order),
    csv: (id) => steps.csv(id, results.get(id) as Report),
  }
  async function runStep(id: string, step: Step): Promise<void> {
    const result = await work[step](id)
    results.set(id, result)
    await tables.record({ id, step, data: result })
    const next = STEPS[STEPS.indexOf(step) + 1]
    if (next === undefined) {
      results.delete(id)
      completions.completed(id)
    } else if (settings.variant === 'inline') await runStep(id, next)
    else await publish(id, next)
  }
  for (const step of STEPS) {
    const options = { prefetch: settings.concurrency, tag: step }
    bus.consume(stepQueue(PROCESS, step), options, async ({ content }) => {
      const { id } = JSON.parse(content.toString()) as { readonly id: string }
      await tables.claim(id)
      await runStep(id, step)
      return 'ack'
    })
  }
  async function queue(ids: readonly string[]): Promise<void> {
    await Promise.all(
      ids.map(async (id) => {
        await tables.insert(id)
        await publish(id, 'order')
      }),
    )
  }
  return engineOfQueue({
    queue,
    completions,
    async close() {
      await bus[Symbol.asyncDispose]()
      await tables[Symbol.asyncDispose]()
    },
  })
}
