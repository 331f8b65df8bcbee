import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { ladder, processTopology } from '@integration-host/shared/contracts/topology'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import { createStepQueue } from '../../../services/coordinator/src/adapters/message-bus/step-queue.ts'
import { connectPostgres } from '../../../services/coordinator/src/adapters/postgres/connection.ts'
import { createPostgresTransactionSource } from '../../../services/coordinator/src/adapters/postgres/transaction-source.ts'
import type { Lease } from '../../../services/coordinator/src/transaction/transaction-source.ts'
import { createTraceparents } from '../../../services/coordinator/src/worker/traceparent.ts'
import { Completions, engineOfQueue, type StartEngine } from '../engine.ts'
import { createSteps } from '../steps.ts'
import { coordinatorTools } from '../tools.ts'

const PROCESS = { name: 'OrderProcess', steps: ['order', 'report', 'csv'] } as const
type Step = (typeof PROCESS.steps)[number]

/** The number of runs that the coordinator inserts with one statement. */
const QUEUE_BATCH = 500
const ACTOR = { keyId: 'bench', person: null }

/**
 * Runs the steps with the coordinator's tables, statements, messages, HTTP client and file writer. There is no HTTP API, no
 * event, no log, no metric, no `step` argument, no time limit of a step, no retry, no renewal of leases and no recovery.
 * Of the first batch, runs start on arrival until half of the allowed number is in flight. All other runs start with a
 * message. The result is a bound for the coordinator with inline dispatch as long as it stores these rows.
 */
export const start: StartEngine = async (settings) => {
  const steps = createSteps(settings, coordinatorTools())
  const completions = new Completions()
  const owner = randomUUID()
  const logger = createLogger('bench', 'error')
  const health = createHealth(logger)
  const postgres = health.dependency('postgres')
  const source = createPostgresTransactionSource(
    connectPostgres(new Secret(settings.databaseUrl), {
      name: 'bench',
      dependency: postgres,
      logger,
    }),
  )
  const bus = connectRabbitMq(new Secret(settings.amqp.url), {
    name: 'bench',
    prefix: settings.amqp.prefix,
    logger,
    dependency: health.dependency('rabbitmq'),
  })
  const traceparentOf = createTraceparents()
  const queue = createStepQueue(bus, owner, traceparentOf)
  await bus.declare(ladder)
  await bus.declare(processTopology(PROCESS.name, PROCESS.steps))
  await bus.ready()
  await untilMigrated(() => source.paused())
  let inFlight = 0

  /** Records a completed step and returns the lease of the next step. */
  async function record(lease: Lease, result: unknown, path: string | null): Promise<Lease> {
    const step = lease.step as Step
    const next = PROCESS.steps[PROCESS.steps.indexOf(step) + 1]
    const response = path === null ? null : { status: 200, body: JSON.stringify(result) }
    const state = await source.record(lease, {
      status: next === undefined ? 'Completed' : 'Running',
      stepName: next ?? step,
      attempt: 1,
      delayMs: 0,
      waitingFor: null,
      lastError: null,
      errorClass: null,
      isInDoubt: false,
      continues: next !== undefined,
      item: {
        status: 'Completed',
        response,
        data: step === 'order' ? (result as Readonly<Record<string, string>>) : null,
        error: null,
      },
      ...(path !== null && {
        call: {
          method: 'GET',
          url: settings.stubUrl + path,
          traceId: traceparentOf(lease).slice(3, 35), // the second of the four parts of the header
          responseId: null,
        },
      }),
    })
    if (state === null) throw new Error(`the lease of ${lease.TransactionID} was lost`)
    return {
      ...lease,
      step: state.StepName,
      version: state.Version,
      startedAt: state.UpdatedAt,
    }
  }
  async function runSteps(first: Lease): Promise<void> {
    const id = first.TransactionID
    const order = await steps.order(id)
    const second = await record(first, order, '/order')
    const report = await steps.report(order)
    const third = await record(second, report, '/report')
    await record(third, await steps.csv(id, report), null)
    completions.completed(id)
  }
  const startOnArrival = async (lease: Lease): Promise<void> => {
    await runSteps(lease)
    inFlight -= 1
  }

  queue.consume(PROCESS.name, 'order', settings.concurrency, async ({ due }) => {
    if (due === null) throw new Error('a message is not a step message')
    inFlight += 1
    const result = await source.claim({ ...due, isFirst: true, owner })
    if (result.kind !== 'claimed') throw new Error(`the claim returned ${result.kind}`)
    await runSteps(result.claim.lease)
    inFlight -= 1
    return 'ack'
  })
  async function queueAll(ids: readonly string[]): Promise<void> {
    for (let from = 0; from < ids.length; from += QUEUE_BATCH) {
      const transactions = ids
        .slice(from, from + QUEUE_BATCH)
        .map((id) => ({ TransactionID: id, InitialData: id }))
      const room = Math.max(0, Math.ceil(settings.concurrency / 2) - inFlight)
      const limit = from === 0 ? Math.min(room, transactions.length) : 0
      inFlight += limit
      const results = await source.queue(PROCESS, transactions, ACTOR, { owner, limit })
      for (const { run, claim } of results)
        if (claim !== undefined) void startOnArrival(claim.lease)
        else {
          const { Process, TransactionID, ReplayID, Version } = run
          const due = { Process, TransactionID, ReplayID, step: 'order', version: Version }
          void queue.publish(due, 0)
        }
    }
  }
  return engineOfQueue({
    queue: queueAll,
    completions,
    async close() {
      await bus[Symbol.asyncDispose]()
      await source[Symbol.asyncDispose]()
    },
  })
}

const MIGRATION_MS = 30_000

/** Resolves when a statement succeeds, which is when the migrations have been applied. */
async function untilMigrated(statement: () => Promise<unknown>): Promise<void> {
  const endsAt = performance.now() + MIGRATION_MS
  for (;;) {
    try {
      await statement()
      return
    } catch (error) {
      if (performance.now() > endsAt) throw error
      await delay(50)
    }
  }
}
