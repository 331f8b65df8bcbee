/**
 * Kills a coordinator after it has committed a transition, or between the response of a receiver and the record of
 * the delivery. Another coordinator must deliver the webhook.
 */
import { createHash } from 'node:crypto'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  createWebhooksFile,
  startWebhookReceiver,
  type WebhookReceiver,
} from '@integration-host/shared/test-support/webhook-receiver'
import { describe, expect, it } from 'vitest'
import { startStepTarget } from '../support/fakes/step-target.ts'
import { queueOrder, readyUrl, startAnotherCoordinator } from '../support/faults/coordinators.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { coordinatorWithFailpoints, diedAt } from '../support/processes/failpoints.ts'
import { startSystem } from '../support/system.ts'

const ORDER = 'the-order'

async function startFixture(env: Readonly<Record<string, string>> = {}) {
  await using stack = new AsyncDisposableStack()
  const receiver = stack.use(await startWebhookReceiver())
  const file = stack.use(await createWebhooksFile([receiver.entry()]))
  const target = stack.use(await startStepTarget())
  const system = stack.use(await startSystem([]))
  const settings = {
    ...file.env,
    DEMO_API_URL: target.url,
    LOCAL_PULL_SECONDS: '0.2',
    REMOTE_PULL_SECONDS: '0.3',
    ...env,
  }
  const owned = stack.move()
  return {
    receiver,
    target,
    system,
    /** Queues the order at a coordinator that kills itself at the failpoint when it handles the transaction. */
    async dieAt(failpoint: string, transaction = ORDER) {
      const process = startAnotherCoordinator(
        system,
        { ...settings, DIES_AT: failpoint, DIES_WITH: transaction },
        coordinatorWithFailpoints,
      )
      const url = await readyUrl(process)
      // The status is `null` if the coordinator died before it responded.
      expect([202, null]).toContain(await queueOrder(system, url, ORDER))
      await diedAt(process, failpoint)
    },
    /** Starts the coordinator that continues after the crash, with all leases expired. */
    async startSurvivor() {
      await using database = await openDatabase(system)
      await database.expireLeases()
      system.start('coordinator', settings, coordinatorWithFailpoints)
      await system.ready('coordinator')
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

const seen = ({ received }: WebhookReceiver) =>
  received.map(({ type, data }) => `${type} ${String(data['TransactionID'])}`)

describe('the webhooks of a coordinator that is killed', { concurrent: true }, () => {
  it.for([
    ['completed', { PROCESS: 'short' }, 200],
    ['failed', {}, 404],
  ] as const)(
    'if a coordinator is killed right after the commit of a %s run, another coordinator delivers the webhook',
    { timeout: 90_000 },
    async ([outcome, env, status]) => {
      await using fixture = await startFixture(env)
      const { target, receiver } = fixture
      target.intercept = (_, response) => {
        response.writeHead(status).end()
        return true
      }
      await fixture.dieAt('recorded')
      expect(receiver.received).toEqual([])
      await fixture.startSurvivor()
      await eventually(() => expect(seen(receiver)).toEqual([`transaction.${outcome} ${ORDER}`]))
      expect(receiver.forged).toEqual([])
    },
  )

  it(
    'if a coordinator is killed during a step, another coordinator reports the step as in doubt and completes the run',
    { timeout: 90_000 },
    async () => {
      await using fixture = await startFixture({ PROCESS: 'short' })
      await fixture.dieAt('claimed')
      await fixture.startSurvivor()
      await eventually(() =>
        expect(seen(fixture.receiver).toSorted()).toEqual([
          `transaction.completed ${ORDER}`,
          `transaction.in_doubt ${ORDER}`,
        ]),
      )
      expect(seen(fixture.receiver)[0]).toContain('in_doubt')
    },
  )

  it(
    'if a coordinator is killed after a receiver has responded, another coordinator repeats the webhook with the same id',
    { timeout: 90_000 },
    async () => {
      await using fixture = await startFixture({ PROCESS: 'short' })
      const { receiver } = fixture
      const { hostname, href } = new URL(receiver.url)
      const digest = (text: string) => createHash('sha256').update(text).digest('hex')
      const receiverId = `${hostname}-${digest(href).slice(0, 8)}`
      const id = `OrderProcess/${ORDER}/0/2`
      const run = `transaction.completed-${digest(`${receiverId}\n${id}`).slice(0, 32)}`
      await fixture.dieAt('answered', run)
      expect(receiver.received.map((webhook) => webhook.id)).toEqual([id])
      await fixture.startSurvivor()
      await eventually(() =>
        expect(receiver.received.map((webhook) => webhook.id)).toEqual([id, id]),
      )
      expect(receiver.received[1]?.text).toBe(receiver.received[0]?.text)
    },
  )
})
