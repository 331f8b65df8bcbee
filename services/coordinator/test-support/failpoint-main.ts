/**
 * Runs the coordinator as an OS process for the fault tests, on PostgreSQL and RabbitMQ. `DIES_AT` names a failpoint
 * in the step protocol. When the coordinator handles the transaction whose id is `DIES_WITH` and reaches the failpoint,
 * it kills itself with SIGKILL, so it flushes, releases and publishes nothing. The failpoints wrap the source and the
 * bus; the product code contains none.
 *
 * Further settings:
 *
 * - `LEASE_MS`: the duration of a lease in milliseconds, instead of 30 s. A lease is renewed after a third of its
 *   duration.
 * - `SWEEP_MS`: milliseconds after which a run counts as overdue if no worker has claimed it. Default: the interval of
 *   the sweeper.
 * - `PROBE_MS`: the interval of the internet probes.
 * - `PROCESS`: the business process to run instead of the order process. `inline` is the order process with `dispatch:
 *   'inline'`. The first step of `company` calls a company through the gateway. The first step of `short` completes the
 *   run. `changes` is like `short`, but changes of invoices start its runs. The second step of `waiting` and `expiring`
 *   is an event; the time of `expiring` is over at once. `rounds` skips its second step and repeats its third one. The
 *   last step of `undo` fails, so the two others are undone. The second place of `changing` waits for a change. `books` creates an
 *   invoice, and a payment unless the number of the order is divisible by three. The second
 *   place of `family` has three children, two of which may run at the same time; `held` is the same with children that never
 *   end. Those of `families` call the demo API; their number is `CHILDREN`.
 * - `TOKEN_SERVICE_URL`: the URL of token-service. Without this setting, every company counts as connected.
 *
 * In a sweep of the change feed, `DIES_WITH` is the id of a change or a realm, instead of the id of a transaction.
 */
import { writeSync } from 'node:fs'
import { PROVIDER_EXCHANGE } from '@integration-host/shared/contracts/provider-event'
import { createHealth } from '@integration-host/shared/observability/health'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { MessageBus, OutgoingMessage } from '@integration-host/shared/messaging/message-bus'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { z } from 'zod'
import { loadProcesses } from '../src/adapters/folder/processes.ts'
import { connectPostgres } from '../src/adapters/postgres/connection.ts'
import { createPostgresTransactionSource } from '../src/adapters/postgres/transaction-source.ts'
import { type CursorRow, CURSORS } from '../src/change-feed/change-cursors.ts'
import { LETTERS, type NewDeadLetter } from '../src/dead-letter/dead-letter-store.ts'
import type { ConnectedCompanies } from '../src/company/connected-companies.ts'
import { readConfig } from '../src/config.ts'
import { defineProcess } from '../src/step/define-process.ts'
import { processOf } from './process-of.ts'
import type { ProcessDefinition } from '../src/step/definition.ts'
import type { Step } from '../src/step/step.ts'
import type { Transition } from '../src/run/progress.ts'
import { startCoordinator } from '../src/service.ts'
import { WAITS_FOR_RESUME } from '../src/run/status.ts'
import type { TransactionSource, WebhooksOf } from '../src/run/transaction-source.ts'

const points = [
  'before insert',
  'inserted',
  'publishing',
  'received',
  'claimed',
  'answered',
  'recorded',
  'published',
  'before replay',
  'replaying',
  'replayed',
  'dead letter received',
  'dead letter stored',
  'company requested',
  'company known',
  'change published',
  'before cursor',
  'cursor moved',
  'parking',
  'parked',
  'before event',
  'event received',
  'wait settled',
  'skipping',
  'skipped',
  'repeating',
  'repeated',
  'undoing',
  'undone',
  'pausing',
  'resuming',
  'storing children',
  'children stored',
  'child ended',
  'joining',
  'joined',
  'cancelling children',
  'children cancelled',
] as const
type Point = (typeof points)[number]

const { DIES_AT, DIES_WITH, LEASE_MS, SWEEP_MS, PROBE_MS, PROCESS, TOKEN_SERVICE_URL, CHILDREN } =
  process.env
const diesAt = points.find((point) => point === DIES_AT)

async function failpoint(point: Point, transactionId: string | undefined): Promise<void> {
  if (point !== diesAt || transactionId !== DIES_WITH) return
  writeSync(process.stdout.fd, `died ${point}\n`)
  process.kill(process.pid, 'SIGKILL')
  await new Promise(() => {}) // SIGKILL takes effect a moment later; until then no later code may run
}

/** Starts the work, and kills the coordinator after the request was sent but before its result is read. */
async function failpointDuring<Result>(
  point: Point,
  transactionId: string | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const left = work()
  if (point === diesAt) await new Promise((resolve) => setImmediate(resolve))
  await failpoint(point, transactionId)
  return left
}

/** Returns the points before and after a transition is recorded. A round counts if it is not the first one. */
function pointsOf({ item, waitingFor }: Transition): readonly [Point, Point] {
  if (waitingFor?.startsWith(WAITS_FOR_RESUME) === true) return ['pausing', 'recorded']
  if (item?.status === 'Undone') return ['undoing', 'undone']
  if (item?.ask !== undefined) return ['parking', 'parked']
  if (item?.status === 'Skipped') return ['skipping', 'skipped']
  return (item?.round?.number ?? 0) > 1 ? ['repeating', 'repeated'] : ['answered', 'recorded']
}

/**
 * Copies a source and adds failpoints to some methods. A copy works, because the methods are closures without `this`.
 */
const sourceWithFailpoints = (source: TransactionSource): TransactionSource => ({
  ...source,
  async queue(process, transactions, by, start) {
    // A batch may begin with a message that a killed coordinator of an earlier test had not acknowledged.
    const id = transactions.find(({ TransactionID }) => TransactionID === DIES_WITH)?.TransactionID
    await failpoint('before insert', id)
    const results = await source.queue(process, transactions, by, start)
    await failpoint('inserted', id)
    return results
  },
  async claim(request) {
    // The claim of the next step must wait, because the coordinator must die after the publish and before any claim.
    // RabbitMQ may deliver the message of the next step to this OS process before it confirms the message to the
    // publisher.
    const isOwnMessage = request.step === 'report' && request.TransactionID === DIES_WITH
    if (diesAt === 'published' && isOwnMessage) return new Promise(() => {})
    await failpoint('received', request.TransactionID)
    const result = await source.claim(request)
    await failpoint('claimed', request.TransactionID)
    return result
  },
  async record(lease, transition) {
    const [before, after] = pointsOf(transition)
    await failpoint(before, lease.TransactionID)
    const header = await source.record(lease, transition)
    await failpoint(after, lease.TransactionID)
    if (transition.status === 'Completed') await failpoint('child ended', lease.TransactionID)
    return header
  },
  async recordChildren(lease, ...rest) {
    await failpoint('storing children', lease.TransactionID)
    const page = await source.recordChildren(lease, ...rest)
    await failpoint('children stored', lease.TransactionID)
    return page
  },
  async joinFamilies(joins) {
    for (const { TransactionID } of joins) await failpoint('joining', TransactionID)
    const moved = await source.joinFamilies(joins)
    for (const { TransactionID } of moved) await failpoint('joined', TransactionID)
    return moved
  },
  async cancelChildren(families, limit) {
    for (const { TransactionID } of families) await failpoint('cancelling children', TransactionID)
    const cancelled = await source.cancelChildren(families, limit)
    for (const { TransactionID } of families) await failpoint('children cancelled', TransactionID)
    return cancelled
  },
  async wake(waitingFor, limit) {
    if (waitingFor.startsWith(WAITS_FOR_RESUME)) await failpoint('resuming', DIES_WITH)
    return source.wake(waitingFor, limit)
  },
  async signal(place, id, ...rest) {
    await failpoint('before event', id)
    const result = await source.signal(place, id, ...rest)
    await failpoint('event received', id)
    return result
  },
  async settleWaits(...args) {
    const moved = await source.settleWaits(...args)
    for (const { TransactionID } of moved) await failpoint('wait settled', TransactionID)
    return moved
  },
  records(kind) {
    const records = source.records(kind)
    if (kind.table === LETTERS.table)
      return {
        ...records,
        async replace(before, after, action) {
          const id = (after as NewDeadLetter | undefined)?.TransactionID ?? undefined
          await failpoint('dead letter received', id)
          const isStored = await records.replace(before, after, action)
          await failpoint('dead letter stored', id)
          return isStored
        },
      }
    if (kind.table !== CURSORS.table) return records
    return {
      ...records,
      async replace(before, after, action) {
        const realm = (before as CursorRow | undefined)?.Realm
        await failpoint('before cursor', realm)
        const isReplaced = await records.replace(before, after, action)
        await failpoint('cursor moved', realm)
        return isReplaced
      },
    }
  },
  async replay(process, id, request, act) {
    await failpoint('before replay', id)
    const header = await failpointDuring('replaying', id, () =>
      source.replay(process, id, request, act),
    )
    await failpoint('replayed', id)
    return header
  },
})

const isOf = ({ type, routingKey }: OutgoingMessage, step: string): boolean =>
  type === 'step' && routingKey.endsWith(`.${step}`)

const busWithFailpoints = (bus: MessageBus): MessageBus => ({
  ...bus,
  async publish(message) {
    const { correlationId: id } = message
    if (isOf(message, 'order')) await failpointDuring('publishing', id, () => bus.publish(message))
    else await bus.publish(message)
    if (isOf(message, 'report')) await failpoint('published', id)
    if (message.exchange === PROVIDER_EXCHANGE)
      await failpoint('change published', message.messageId)
  },
})

/**
 * Calls a company through the gateway. It has the name of the order process, so that the tests also remove the queues
 * of this process.
 */
const companyProcess = processOf('OrderProcess', {
  steps: {
    order: (step: Step) =>
      step.execute(
        { url: `/v3/company/${step.realm}/companyinfo/${step.realm}` },
        { credential: `ACC-${step.realm}` },
      ),
    report: (step: Step) => void step.complete(),
    csv: (step: Step) => void step.complete(),
  },
})

/** A process whose first step completes the run. */
const shortProcess = processOf('OrderProcess', {
  steps: {
    order: (step: Step) => step.setStatus('Completed'),
    report: (step: Step) => void step.complete(),
    csv: (step: Step) => void step.complete(),
  },
})

const changesProcess = processOf('OrderProcess', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update', 'delete'] }],
  steps: {
    order: (step: Step) => step.setStatus('Completed'),
    report: (step: Step) => void step.complete(),
    csv: (step: Step) => void step.complete(),
  },
})

/** The list of companies for the process `changes`, because no token-service runs in the fault tests. */
const companiesWithFailpoints: ConnectedCompanies = {
  page: async () => ({ realms: [], next: null }),
  async isConnected() {
    await failpoint('company requested', DIES_WITH)
    await new Promise((resolve) => setImmediate(resolve))
    await failpoint('company known', DIES_WITH)
    return true
  },
}

/** Processes whose second step is an event. The time of `expiring` is over at once. */
const waitingProcess = defineProcess('OrderProcess')
  .step('order', (step) => step.complete())
  .event('report')
  .step('csv', (step) => step.complete(step.previous.data))
const expiringProcess = defineProcess('OrderProcess')
  .step('order', (step) => step.complete())
  .event('report', { timeoutSeconds: 0.001, onTimeout: 'continue' })
  .step('csv', (step) => step.complete(step.previous.data))
/** Skips its second step, and runs its third one in four rounds. */
const roundsProcess = defineProcess('OrderProcess')
  .step('order', (step) => step.complete())
  .step('report', (step) => step.complete(), { when: () => false })
  .step(
    'csv',
    (step) => (step.round < 3 ? step.repeat((step.state ?? 0) + 1) : step.complete(step.state)),
    { state: z.number() },
  )

/** Its last step fails, and the first one is undone. */
const undoProcess = defineProcess('OrderProcess')
  .step('order', (step) => step.complete(), { undo: (step) => step.complete() })
  .step('report', (step) => step.complete(), { undo: (step) => step.complete() })
  .step('csv', (step) => step.fail('no stock', { undo: true }))
/** Its second place waits until an invoice is paid. */
const changingProcess = defineProcess('OrderProcess')
  .step('order', (step) => step.complete())
  .change('report', {
    entity: 'Invoice',
    id: () => '129',
    until: (invoice) => invoice['Balance'] === 0,
  })
  .step('csv', (step) => step.complete(step.previous.data['Id'] ?? null))

/** Its second place has three children. They have a process of their own. */
const lineProcess = defineProcess('OrderLine').step('line', async (step) => step.complete(1))
const heldProcess = defineProcess('OrderLine').step('line', async (step) => step.waitFor(100))
const callingProcess = defineProcess('OrderLine').step('line', async (step) => {
  await step.fetch({ url: `${process.env['DEMO_API_URL']}/order` })
  return step.complete(1)
})
const familyOf = (children: typeof lineProcess, count: number, concurrent: number) =>
  defineProcess('OrderProcess')
    .step('order', (step) => step.complete())
    .forEach('report', children, {
      items: () => Array.from({ length: count }, (_, n) => ({ id: n + 1, data: null })),
      concurrent,
    })
    .step('csv', (step) => step.complete(step.previous.data.completed))

/** Creates an invoice, and a payment for two of three orders. */
const booksProcess = defineProcess('OrderProcess', { input: z.string() })
  .step('order', (step) =>
    step.execute(
      {
        method: 'POST',
        url: `/v3/company/${step.realm}/invoice`,
        body: {
          DocNumber: step.initialData,
          PrivateNote: 'as sent',
          Line: [{ Amount: 66, DetailType: 'SalesItemLineDetail' }],
        },
      },
      {
        credential: `ACC-${step.realm}`,
        parse: (body) => z.object({ Invoice: z.object({ Id: z.string() }) }).parse(body).Invoice.Id,
      },
    ),
  )
  .step('report', (step) =>
    Number(step.initialData) % 3 === 0
      ? step.complete(null)
      : step.execute(
          {
            method: 'POST',
            url: `/v3/company/${step.realm}/payment`,
            body: {
              PrivateNote: 'as sent',
              TotalAmt: 66,
              Line: [
                { Amount: 66, LinkedTxn: [{ TxnId: step.previous.data, TxnType: 'Invoice' }] },
              ],
            },
          },
          { credential: `ACC-${step.realm}` },
        ),
  )
  .step('csv', (step) => step.complete())
/** Its runs say which changed entries were reported. */
const auditProcess = defineProcess('OrderLine', {
  on: (['Invoice', 'Payment'] as const).map((entity) => ({
    entry: ['changed', 'deleted', 'missing'],
    entity,
  })),
}).step('line', (step) => step.complete())

// The coordinator's own loader loads the order process, because its file imports `integration-host`.
const orderProcess = (await loadProcesses()).definitions.get('OrderProcess')
if (orderProcess === undefined) throw new StartupError('OrderProcess was not loaded')

const processes: Readonly<Record<string, ProcessDefinition>> = {
  order: orderProcess,
  inline: { ...orderProcess, dispatch: 'inline' },
  company: companyProcess,
  short: shortProcess,
  changes: changesProcess,
  waiting: waitingProcess,
  expiring: expiringProcess,
  rounds: roundsProcess,
  undo: undoProcess,
  changing: changingProcess,
  family: familyOf(lineProcess, 3, 2),
  held: familyOf(heldProcess, 3, 2),
  families: familyOf(callingProcess, Number(CHILDREN ?? 3), 10),
  books: booksProcess,
}
const children: Readonly<Record<string, ProcessDefinition>> = {
  family: lineProcess,
  held: heldProcess,
  families: callingProcess,
  books: auditProcess,
}

await runService('coordinator', async () => {
  if (DIES_AT !== undefined && diesAt === undefined)
    throw new StartupError(`DIES_AT is one of ${JSON.stringify(points)}`)
  const definition = processes[PROCESS ?? 'order']
  if (definition === undefined)
    throw new StartupError(`PROCESS is one of ${JSON.stringify(Object.keys(processes))}`)
  const config = readConfig(process.env)
  if (config.TRANSACTION_SOURCE === 'memory')
    throw new StartupError('this program needs PostgreSQL')
  const logger = createLogger('coordinator', config.LOG_LEVEL)
  const health = createHealth(logger)
  await using stack = new AsyncDisposableStack()
  const leaseMs = LEASE_MS === undefined ? undefined : Number(LEASE_MS)
  const probeMs = PROBE_MS === undefined ? undefined : Number(PROBE_MS)
  const openSource = (webhooksOf?: WebhooksOf): TransactionSource =>
    sourceWithFailpoints(
      createPostgresTransactionSource(
        connectPostgres(config.DATABASE_URL, {
          name: 'coordinator',
          dependency: health.dependency('postgres'),
          logger,
        }),
        {
          sweepMs: Number(SWEEP_MS ?? config.LOCAL_PULL_SECONDS * 1_000),
          ...(leaseMs !== undefined && { leaseMs }),
          webhooksOf,
        },
      ),
    )
  const bus = stack.use(
    connectRabbitMq(config.AMQP_URL, {
      name: `coordinator (${process.pid})`,
      dependency: health.dependency('rabbitmq'),
      logger,
      prefix: config.AMQP_PREFIX,
    }),
  )
  const service = stack.use(
    await startCoordinator(config, {
      logger,
      health,
      openSource,
      bus: busWithFailpoints(bus),
      processes: [definition, ...[children[PROCESS ?? ''] ?? []].flat()],
      ...(definition === changesProcess &&
        TOKEN_SERVICE_URL === undefined && { companies: companiesWithFailpoints }),
      timing: {
        ...(leaseMs !== undefined && { renewMs: leaseMs / 3 }),
        ...(probeMs !== undefined && {
          onlineIntervalMs: probeMs,
          offlineIntervalMs: probeMs,
          confirmMs: probeMs / 2,
        }),
      },
    }),
  )
  const owned = stack.move()
  return { url: service.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
})
