/**
 * A coordinator that a test can kill. After its death it has no further effect on its store, its broker and its
 * targets. As after the kill of an OS process, the broker delivers its unacknowledged messages again, and its leases
 * expire.
 */
import { readEmbeddedConfig } from '@integration-host/coordinator/config'
import type { ConnectedCompanies } from '@integration-host/coordinator/connected-companies'
import type { HttpCall } from '@integration-host/coordinator/http-call'
import type { ProcessDefinition } from '@integration-host/coordinator/process'
import { startCoordinator } from '@integration-host/coordinator/service'
import type { TransactionSource } from '@integration-host/coordinator/transaction-source'
import { StepMessage } from '@integration-host/shared/contracts/topology'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseMessageAs } from '@integration-host/shared/json'
import type {
  Consumer,
  Delivery,
  MessageBus,
  Settlement,
} from '@integration-host/shared/messaging/message-bus'
import { createHealth } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Clock } from '@integration-host/shared/process/clock'
import type { WorkInFlight } from './work-in-flight.ts'

/**
 * The points at which the worker of a step can die. `before request`: before it sends a call. `after request`: after
 * the target has received the call and before the response arrives. `before commit`: after the step function has ended
 * and before the outcome is committed. `after commit`: after the commit and before the next step is started.
 */
export const killPoints = [
  'before request',
  'after request',
  'before commit',
  'after commit',
] as const
/** A point of an attempt at which the coordinator is killed. */
export type KillPoint = (typeof killPoints)[number]

export interface Replica extends AsyncDisposable {
  readonly isDead: boolean
  /** Sends a request to the HTTP interface. */
  request(path: string, init?: RequestInit): Promise<Response>
}

/** The HTTP interface of the coordinator. */
type App = Parameters<NonNullable<Parameters<typeof startCoordinator>[1]['serve']>>[0]

export interface ReplicaDeps {
  readonly source: TransactionSource
  readonly bus: MessageBus
  readonly call: HttpCall
  readonly companies: ConnectedCompanies
  readonly clock: Clock
  readonly work: WorkInFlight
  readonly processes: readonly ProcessDefinition[]
  readonly dataDir: string
  readonly logger: Logger
  /** Returns whether the worker must die at this point of the current step. Called once for each point of each step. */
  readonly diesAt: (point: KillPoint) => boolean
  /** Called when a step has started or ended. */
  readonly onActivity: () => void
}

const KEY = 'the-service-key-of-the-test-host-0123456789'
export const GATEWAY_URL = 'http://gateway.test'

export async function startReplica(deps: ReplicaDeps): Promise<Replica> {
  const { bus, clock, work, diesAt, logger } = deps
  const death = Promise.withResolvers<void>()
  const consumers = new Set<Consumer>()
  let isDead = false
  const die = (): void => {
    isDead = true
    // The consumers of this dead replica are cancelled, so that the broker does not deliver the unacknowledged messages
    // to this replica again.
    for (const consumer of consumers) void consumer.cancel()
    death.resolve()
  }

  const replicaBus: MessageBus = {
    ...bus,
    publish: async (message) => {
      if (!isDead) await bus.publish(message)
    },
    consume(queue, options, handle) {
      const consumer = bus.consume(queue, options, (delivery) => {
        const handled = (): Promise<Settlement> =>
          Promise.race([handle(delivery), death.promise.then((): Settlement => 'requeue')])
        const step = stepOf(delivery)
        return step === null ? work.track(handled()) : work.trackStep(step, handled)
      })
      consumers.add(consumer)
      return consumer
    },
  }

  const call: HttpCall = async (request, limits) => {
    if (isDead) return { kind: 'aborted', isSent: false }
    if (diesAt('before request')) {
      die()
      return { kind: 'aborted', isSent: false }
    }
    const outcome = await deps.call(request, limits)
    if (isDead || !diesAt('after request')) return outcome
    die()
    return { kind: 'aborted', isSent: true }
  }

  const { source } = deps
  const tracked = trackedStore(source, work, () => isDead)
  const replicaSource: TransactionSource = {
    ...tracked,
    // The test host learns only from a delivered message which step is in progress. Therefore this `queue` only stores
    // runs, and never claims their first step.
    queue: (process, transactions, by) => tracked.queue(process, transactions, by),
    async claim(message) {
      if (isDead) return { kind: 'stale' }
      const result = await tracked.claim(message)
      if (result.kind === 'claimed') deps.onActivity()
      return result
    },
    async record(lease, transition) {
      if (isDead || diesAt('before commit')) {
        die()
        return null
      }
      const recorded = await tracked.record(lease, transition)
      if (diesAt('after commit')) die()
      deps.onActivity()
      const step = work.currentStep()
      if (step !== null && transition.continues === true) step.step = transition.stepName
      return recorded
    },
    async renew(leases) {
      return isDead ? [] : tracked.renew(leases)
    },
    [Symbol.asyncDispose]: async () => {},
  }

  let app: App | null = null
  const service = await startCoordinator(
    readEmbeddedConfig({ SERVICE_API_KEY: KEY, DATA_DIR: deps.dataDir, GATEWAY_URL }),
    {
      logger,
      health: createHealth(logger),
      openSource: () => replicaSource,
      bus: replicaBus,
      processes: deps.processes,
      companies: deps.companies,
      readsChangeFeed: false, // the test itself reports each change
      clock,
      waitForClock: (wait) => work.waitForClock(wait),
      // The random part of the delay before a retry always has its largest value, so that a test can compute the time
      // of the next attempt.
      random: () => 1 - Number.EPSILON,
      call,
      timing: { drainMs: 0 },
      async serve(served) {
        app = served
        return { url: '', [Symbol.asyncDispose]: async () => {} }
      },
    },
  )
  return {
    get isDead() {
      return isDead
    },
    async request(path, init = {}) {
      const headers = new Headers(init.headers)
      headers.set('authorization', `Bearer ${KEY}`)
      const request = new Request(`http://coordinator.test${path}`, { ...init, headers })
      return (await app?.fetch(request, {})) ?? Response.error()
    },
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  }
}

/** Returns the step that a message starts; `null` for any other message. */
function stepOf({ type, content }: Delivery): { process: string; step: string } | null {
  if (type !== 'step') return null
  const message = parseMessageAs(StepMessage, content)
  return message === null ? null : { process: message.Process, step: message.Step }
}

/**
 * Returns a store that counts each call as work in flight: a transaction source, or the rows of a table that it returns.
 * Once the replica is dead, every call is rejected as if the store were unavailable.
 */
function trackedStore<Store extends object>(
  store: Store,
  work: WorkInFlight,
  isDead: () => boolean,
): Store {
  const members = Object.entries(store).map(([name, member]: [string, unknown]) => {
    if (typeof member !== 'function') return [name, member]
    const call = (...args: readonly unknown[]): unknown => Reflect.apply(member, store, args)
    if (name === ('records' satisfies keyof TransactionSource))
      return [
        name,
        (...args: readonly unknown[]) => trackedStore(call(...args) as object, work, isDead),
      ]
    return [
      name,
      (...args: readonly unknown[]): unknown => {
        if (isDead())
          return Promise.reject(new IntegrationError('store_unavailable', 'the worker is dead'))
        const result = call(...args)
        return result instanceof Promise ? work.track(result) : result
      },
    ]
  })
  return Object.fromEntries(members) as Store // the members keep their types
}
