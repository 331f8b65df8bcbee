import { STEPS_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { connect } from 'amqplib'
import { queueOrder } from '../../support/faults/coordinators.ts'
import { openDatabase } from '../../support/faults/database-assertions.ts'
import { startStepTarget } from '../../support/fakes/step-target.ts'
import { waitForRun } from '../../support/clients/user-actions.ts'
import { backend, startSystem } from '../../support/system.ts'
import type { Target } from '../fuzz.ts'

/** Number of mutated messages after which an order must complete. */
const CONTROL_EVERY = 50

/**
 * Publishes mutated step messages. The coordinator must discard or dead-letter each message, start no run because
 * of it, and continue to consume. Orders must complete between the messages.
 */
export async function stepMessages(): Promise<Target> {
  await using opened = new AsyncDisposableStack()
  const target = opened.use(await startStepTarget())
  const system = opened.use(await startSystem([]))
  const started = system.start('coordinator', {
    LOG_LEVEL: 'silent',
    DEMO_API_URL: target.url,
    GATEWAY_URL: target.url,
  })
  await system.ready('coordinator')
  const database = opened.use(await openDatabase(system))
  const broker = await connect(backend('TEST_AMQP_URL'))
  opened.defer(() => broker.close())
  const channel = await broker.createConfirmChannel()
  const message = (id: string, version: number): Buffer =>
    Buffer.from(
      JSON.stringify({
        v: 1,
        Process: 'OrderProcess',
        TransactionID: id,
        ReplayID: 0,
        Step: 'order',
        Version: version,
      }),
    )
  let sent = 0
  let orders = 0
  async function expectOrder(): Promise<void> {
    const id = `control-${(orders += 1)}`
    const status = await queueOrder(system, system.url('coordinator'), id)
    if (status !== 202) throw new Error(`an order was rejected with ${status}`)
    await waitForRun(system, id, 0, 'Completed')
  }
  await expectOrder()

  const running = opened.move()
  return {
    inputs: [message('control-1', 0), message('control-1', 1), message('absent', 0)],
    processes: [started],
    async check(input) {
      channel.publish(system.amqpPrefix + STEPS_EXCHANGE, 'OrderProcess.order', input)
      await channel.waitForConfirms()
      if ((sent += 1) % CONTROL_EVERY === 0) await expectOrder()
    },
    async checkAll() {
      await expectOrder()
      const { runs, completed } = await database.countRuns()
      if (runs !== orders || completed !== orders)
        throw new Error(`${orders} orders were queued, ${runs} exist, ${completed} are completed`)
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}
