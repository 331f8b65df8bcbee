import { randomUUID } from 'node:crypto'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { Secret } from '@integration-host/shared/secrets/secret'
import {
  createStepQueue,
  createTraceparents,
} from '../../../services/coordinator/src/worker/step-queue.ts'
import { connectPostgres } from '../../../services/coordinator/src/adapters/postgres/connection.ts'
import { createPostgresTransactionSource } from '../../../services/coordinator/src/adapters/postgres/transaction-source.ts'
import type { Json } from '../../../services/coordinator/src/run/json-normalization.ts'
import { advance } from '../../../services/coordinator/src/run/progress.ts'
import { defaultRetryPolicy } from '../../../services/coordinator/src/run/retry-policy.ts'
import { createPauseStore } from '../../../services/coordinator/src/run/pause.ts'
import type { Claim } from '../../../services/coordinator/src/run/transaction-source.ts'
import { ABORTED, createStoreRetry } from '../../../services/coordinator/src/worker/store-retry.ts'
import { Completions, engineOfQueue, type StartEngine } from '../engine.ts'
import { openStepBus } from '../step-bus.ts'
import { createSteps, type Steps } from '../steps.ts'
import { coordinatorTools } from '../tools.ts'

const PROCESS = { name: 'OrderProcess', steps: ['order', 'report', 'csv'] } as const

const STEPS_WITHOUT_CALLS: Pick<Steps, 'order' | 'report'> = {
  order: (id) => Promise.resolve({ Order: `O-${id}`, CreatedAt: '2026-11-20T21:24:19.321+01:00' }),
  report: (order) => Promise.resolve({ ...order, Status: 'Confirmed' }),
}

/** The number of runs that the coordinator inserts with one statement. */
const QUEUE_BATCH = 500
const MIGRATION_MS = 30_000
const ACTOR = { keyId: 'bench', person: null }

/**
 * Runs the steps with the coordinator's tables, statements, messages, HTTP client and file writer. There is no HTTP API, no
 * event, no log, no metric, no `step` argument, no time limit of a step, no retry, no renewal of leases and no recovery.
 * Of the first batch, runs start on arrival until half of the allowed number is in flight. All other runs start with a
 * message. The result is a bound for the coordinator with inline dispatch as long as it stores these rows.
 *
 * With the variant `statements`, all runs start on arrival and make no calls, and there are no messages. The result is
 * the bound of the statements, with the driver and the files.
 */
export const start: StartEngine = async (settings) => {
  const isStatementsOnly = settings.variant === 'statements'
  const steps = {
    ...createSteps(settings, coordinatorTools()),
    ...(isStatementsOnly && STEPS_WITHOUT_CALLS),
  }
  const completions = new Completions()
  const owner = randomUUID()
  const logger = createLogger('bench', 'error')
  const source = createPostgresTransactionSource(
    connectPostgres(new Secret(settings.databaseUrl), {
      name: 'bench',
      dependency: createHealth(logger).dependency('postgres'),
      logger,
    }),
  )
  const bus = await openStepBus(settings, PROCESS.name, PROCESS.steps)
  const traceparentOf = createTraceparents()
  const queue = createStepQueue(bus, owner, traceparentOf)
  // A statement succeeds when the migrations have been applied.
  const retryStore = createStoreRetry(Math.random)
  const read = await retryStore(
    () => createPauseStore(source).paused(),
    AbortSignal.timeout(MIGRATION_MS),
  )
  if (read === ABORTED) throw new Error('the database was not migrated in time')
  let inFlight = 0

  /** Records a completed step and returns the claim of the next step. */
  async function record(claim: Claim, result: Json, path: string | null): Promise<Claim> {
    const { lease, run } = claim
    const response = path === null ? null : { status: 200, body: JSON.stringify(result) }
    const data = path === '/order' ? result : null
    const completed = { kind: 'completed', response, data, endsRun: false } as const
    const { steps: names } = PROCESS
    const options = { steps: names, policy: defaultRetryPolicy, random: 0, isInline: true }
    const state = await source.record(lease, {
      ...advance(run, completed, options),
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
    const { StepName: step, Version: version, UpdatedAt: startedAt } = state
    return { ...claim, lease: { ...lease, step, version, startedAt }, run: { ...run, ...state } }
  }
  async function runSteps(first: Claim): Promise<void> {
    const id = first.run.TransactionID
    const order = await steps.order(id)
    const second = await record(first, { ...order }, '/order')
    const report = await steps.report(order)
    const third = await record(second, { ...report }, '/report')
    await record(third, await steps.csv(id, report), null)
    completions.completed(id)
  }
  const startOnArrival = async (claim: Claim): Promise<void> => {
    await runSteps(claim)
    inFlight -= 1
  }

  queue.consume(PROCESS.name, 'order', settings.concurrency, async ({ due }) => {
    if (due === null) throw new Error('a message is not a step message')
    inFlight += 1
    const result = await source.claim({ ...due, isFirst: true, owner })
    if (result.kind !== 'claimed') throw new Error(`the claim returned ${result.kind}`)
    await runSteps(result.claim)
    inFlight -= 1
    return 'ack'
  })
  async function queueAll(ids: readonly string[]): Promise<void> {
    for (let from = 0; from < ids.length; from += QUEUE_BATCH) {
      const transactions = ids
        .slice(from, from + QUEUE_BATCH)
        .map((id) => ({ TransactionID: id, InitialData: id }))
      const room = Math.max(0, Math.ceil(settings.concurrency / 2) - inFlight)
      const startable = isStatementsOnly ? transactions.length : from === 0 ? room : 0
      const limit = Math.min(startable, transactions.length)
      inFlight += limit
      const results = await source.queue(PROCESS, transactions, ACTOR, { owner, limit })
      for (const { run, claim } of results)
        if (claim !== undefined) void startOnArrival(claim)
        else if (run !== undefined) {
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
