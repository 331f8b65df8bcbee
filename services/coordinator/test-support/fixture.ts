import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestDatabase } from '@integration-host/postgres/test-support/database'
import { digestOf } from '@integration-host/shared/access/key-list'
import {
  credentialsTopology,
  ladder,
  processTopology,
  startTopology,
  webhooksTopology,
  signalKey,
} from '@integration-host/shared/contracts/topology'
import {
  entriesQueue,
  changesQueue,
  onQueue,
  PROVIDER_EXCHANGE,
} from '@integration-host/shared/contracts/provider-event'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { readEvents } from '@integration-host/shared/http/response-body'
import {
  COORDINATORS_EXCHANGE,
  TRANSACTIONS_EXCHANGE,
} from '@integration-host/shared/contracts/events'
import { createHealth } from '@integration-host/shared/observability/health'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger, type Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { connectRabbitMq } from '@integration-host/shared/messaging/rabbitmq/message-bus'
import { Secret } from '@integration-host/shared/secrets/secret'
import { atEndOfFile } from '@integration-host/shared/test-support/end-of-file'
import { until } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { connect } from 'amqplib'
import { afterEach, beforeEach } from 'vitest'
import { loadProcesses } from '../src/adapters/folder/processes.ts'
import { createMemoryTransactionSource } from '../src/adapters/memory/transaction-source.ts'
import { readEmbeddedConfig } from '../src/config.ts'
import type { ProcessDefinition } from '../src/step/definition.ts'
import type { CoordinatorAdapters } from '../src/core.ts'
import { startCoordinator } from '../src/service.ts'
import type { TransactionSource, WebhooksOf } from '../src/run/transaction-source.ts'
import { takeDatabase } from './database.ts'
import { startTarget, type Target } from './fake-target.ts'
import { openPostgresSource } from './postgres-source.ts'

export const serviceKey = 'test-key-0123456789-0123456789-0123456789'

/** A service key of a test. It is for all companies and all processes, if it does not say otherwise. */
export interface TestKey {
  readonly id: string
  readonly scopes: readonly string[]
  readonly realms?: readonly string[]
  readonly processes?: readonly string[]
  readonly expires?: string
}

/** Returns the secret of a service key. */
export const keyOf = (id: string): string => `${id}-`.padEnd(40, 'x')
/** Returns the header of a request with this service key. */
export const bearer = (id: string): { readonly Authorization: string } => ({
  Authorization: `Bearer ${keyOf(id)}`,
})

/** Writes the file of the service keys, and returns its path. Coordinators that are running read it again. */
export async function writeKeys(
  { dataDir }: Pick<Backends, 'dataDir'>,
  keys: readonly TestKey[],
): Promise<string> {
  const file = join(dataDir, 'keys.json')
  const entries = keys.map((key) => ({
    realms: ['*'],
    processes: ['*'],
    ...key,
    sha256: digestOf(keyOf(key.id)),
  }))
  await writeFile(file, JSON.stringify(entries))
  return file
}

interface SourceTimes {
  readonly sweepMs?: number
  readonly leaseMs?: number
}

interface SourceOptions extends SourceTimes {
  readonly webhooksOf?: WebhooksOf | undefined
}

/** The processes whose queues a test needs, with their steps. */
type Steps = Readonly<Record<string, readonly string[]>>

/**
 * The transaction source and the message bus of a test. Several coordinators can be started on them one after another.
 */
export interface Backends extends AsyncDisposable {
  readonly kind: 'embedded' | 'real'
  readonly dataDir: string
  readonly prefix: string
  readonly database: TestDatabase | null
  openSource(options?: SourceOptions): Promise<TransactionSource>
  openBus(url?: string): Promise<MessageBus>
}

const amqpUrl = (): string => process.env['TEST_AMQP_URL'] ?? ''
const silent = createLogger('test', 'silent')

export async function openBackends(
  kind: 'embedded' | 'real',
  steps: Steps = { OrderProcess: ['order', 'report', 'csv'] },
  openDatabase: () => Promise<TestDatabase> = takeDatabase,
): Promise<Backends> {
  const dataDir = await mkdtemp(join(tmpdir(), 'coordinator-'))
  const database = kind === 'real' ? await openDatabase() : null
  const prefix = database === null ? newPrefix() : await takePrefix(steps)
  return {
    kind,
    dataDir,
    prefix,
    database,
    async openSource(given = {}) {
      if (database === null) return createMemoryTransactionSource(dataDir, given)
      return openPostgresSource(database.url, given)
    },
    async openBus(url = amqpUrl()) {
      if (kind === 'embedded') return createInProcessBus(silent)
      const bus = connectRabbitMq(new Secret(url), {
        name: 'test',
        dependency: createHealth(silent).dependency('rabbitmq'),
        logger: silent,
        prefix,
      })
      return bus
    },
    async [Symbol.asyncDispose]() {
      await rm(dataDir, { recursive: true, force: true })
      if (database === null) return
      await database[Symbol.asyncDispose]()
      unusedPrefixes.get(JSON.stringify(steps))?.push(prefix)
    },
  }
}

/** Returns the environment variables for a coordinator in a separate OS process that uses the real backends. */
export const environmentOf = ({ database, prefix, dataDir }: Backends) => ({
  PORT: '0',
  SERVICE_API_KEY: serviceKey,
  DATABASE_URL: database?.url,
  AMQP_URL: amqpUrl(),
  AMQP_PREFIX: prefix,
  DATA_DIR: dataDir,
  LOCAL_PULL_SECONDS: '0.2',
})

/** The reply code of RabbitMQ if there is no such queue. */
const NOT_FOUND = 404

const newPrefix = (): string => `test-${crypto.randomUUID().slice(0, 8)}.`

/** Prefixes that no test uses at present, by the processes whose queues exist under them. */
const unusedPrefixes = new Map<string, string[]>()

/**
 * A prefix of the names of queues for one test. To declare and delete all queues takes RabbitMQ longer than most tests.
 * Therefore the queues stay, and are emptied for the next test of the file with the same processes.
 */
async function takePrefix(steps: Steps): Promise<string> {
  const key = JSON.stringify(steps)
  const unused = unusedPrefixes.get(key) ?? []
  unusedPrefixes.set(key, unused)
  const known = unused.pop()
  if (known !== undefined) {
    await emptyQueues(known, steps)
    return known
  }
  const prefix = newPrefix()
  atEndOfFile(async () => {
    unusedPrefixes.delete(key)
    await removeTopology(prefix, steps)
  })
  return prefix
}

const topologiesOf = (steps: Steps) => [
  ladder,
  credentialsTopology,
  webhooksTopology,
  processTopology('ChangeFeed', ['read']),
  ...Object.entries(steps).map(([name, names]) => processTopology(name, names)),
  ...Object.keys(steps).map((process) => startTopology(process)),
  ...Object.keys(steps).map((process) => startTopology(process, signalKey(process))),
]

const queuesOf = (steps: Steps): string[] =>
  topologiesOf(steps).flatMap((topology) => topology.queues.map(({ name }) => name))

/** The queues whose bindings follow from the definitions that a test loads. */
const boundQueuesOf = (steps: Steps): string[] =>
  Object.keys(steps).flatMap((process) => [
    onQueue(process),
    changesQueue(process),
    entriesQueue(process),
  ])

async function emptyQueues(prefix: string, steps: Steps): Promise<void> {
  const connection = await connect(amqpUrl())
  const deletions = await connection.createChannel()
  const empty = async (name: string): Promise<void> => {
    // The purge of a queue that no test has declared closes its channel.
    const channel = await connection.createChannel()
    channel.on('error', () => {})
    await channel.purgeQueue(prefix + name).catch((error: unknown) => {
      if ((error as { readonly code?: unknown }).code !== NOT_FOUND) throw error
    })
  }
  await Promise.all([
    ...queuesOf(steps).map(empty),
    ...boundQueuesOf(steps).map((name) => deletions.deleteQueue(prefix + name)),
  ])
  await connection.close()
}

async function removeTopology(prefix: string, steps: Steps): Promise<void> {
  const connection = await connect(amqpUrl())
  const channel = await connection.createChannel()
  const exchanges = topologiesOf(steps).flatMap((topology) => topology.exchanges)
  const names = [
    ...exchanges.map((exchange) => exchange.name),
    TRANSACTIONS_EXCHANGE,
    COORDINATORS_EXCHANGE,
  ]
  await Promise.all([
    ...[...queuesOf(steps), ...boundQueuesOf(steps)].map((name) =>
      channel.deleteQueue(prefix + name),
    ),
    ...[...names, PROVIDER_EXCHANGE].map((name) => channel.deleteExchange(prefix + name)),
  ])
  await connection.close()
}

export interface Fixture extends AsyncDisposable {
  readonly backends: Backends
  readonly url: string
  readonly source: TransactionSource
  readonly bus: MessageBus
  readonly target: Target
  readonly log: readonly { readonly msg: string; readonly [key: string]: unknown }[]
  call(path: string, init?: RequestInit): Promise<Response>
  queue(id: string, data?: unknown, realm?: string): Promise<Response>
  run(id: string, replay?: number): Promise<TransactionView & { ErrorClass: string | null }>
  /** Waits until the run has the status, and resolves with the run. */
  reached(id: string, status: string, replay?: number): Promise<Awaited<ReturnType<Fixture['run']>>>
}

export interface FixtureOptions {
  readonly env?: Readonly<Record<string, string>>
  /** The service keys beside `serviceKey`. */
  readonly keys?: readonly TestKey[]
  readonly processes?: readonly ProcessDefinition[]
  /** Overrides the `dispatch` of all processes. */
  readonly dispatch?: ProcessDefinition['dispatch']
  readonly timing?: CoordinatorAdapters['timing']
  readonly times?: SourceTimes
  readonly amqpUrl?: string
  readonly bus?: MessageBus
  readonly source?: TransactionSource
  /** Wraps the source or the bus of the coordinator, so that their calls fail at chosen points. */
  readonly wrapSource?: (source: TransactionSource) => TransactionSource
  readonly wrapBus?: (bus: MessageBus) => MessageBus
}

/** Starts a coordinator and its fake target. */
export const startFixture = (backends: Backends, options: FixtureOptions = {}): Promise<Fixture> =>
  startOn(backends, options, new AsyncDisposableStack())

/** Starts a coordinator and its fake target on embedded backends, which are closed together with the coordinator. */
export async function startEmbedded(options: FixtureOptions = {}): Promise<Fixture> {
  const stack = new AsyncDisposableStack()
  return startOn(stack.use(await openBackends('embedded')), options, stack)
}

/** Starts a coordinator, which is closed together with the resources in `owned`. */
async function startOn(
  backends: Backends,
  options: FixtureOptions,
  owned: AsyncDisposableStack,
): Promise<Fixture> {
  await using stack = owned.move()
  const target = stack.use(await startTarget())
  let source: TransactionSource | undefined = options.source
  const openSource = async (webhooksOf?: WebhooksOf): Promise<TransactionSource> => {
    source ??= stack.use(await backends.openSource({ ...options.times, webhooksOf }))
    return { ...(options.wrapSource?.(source) ?? source), async [Symbol.asyncDispose]() {} }
  }
  const bus = options.bus ?? stack.use(await backends.openBus(options.amqpUrl))
  if (options.amqpUrl === undefined) await bus.ready(AbortSignal.timeout(60_000))
  const lines: string[] = []
  const logger: Logger = createLogger('test', 'debug', { write: (line) => void lines.push(line) })
  const config = readEmbeddedConfig({
    PORT: '0',
    SERVICE_API_KEY: serviceKey,
    DATA_DIR: backends.dataDir,
    DEMO_API_URL: target.url,
    GATEWAY_URL: target.url,
    TOKEN_SERVICE_URL: target.url,
    LOCAL_PULL_SECONDS: '0.2',
    REMOTE_PULL_SECONDS: '0.5',
    ...(options.keys !== undefined && {
      SERVICE_KEYS_FILE: await writeKeys(backends, options.keys),
    }),
    ...options.env,
  })
  const { dispatch } = options
  const given = options.processes ?? [...(await loadProcesses()).definitions.values()]
  const processes =
    dispatch === undefined ? given : given.map((definition) => ({ ...definition, dispatch }))
  const service = stack.use(
    await startCoordinator(config, {
      logger,
      health: createHealth(silent),
      openSource,
      bus: options.wrapBus?.(bus) ?? bus,
      processes,
      ...(options.timing !== undefined && { timing: options.timing }),
    }),
  )
  const running = stack.move()
  const call = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(service.url + path, {
      ...init,
      headers: { Authorization: `Bearer ${serviceKey}`, ...(init.headers as object) },
    })
  const process = options.processes?.[0]?.name ?? 'OrderProcess'
  const fixture: Fixture = {
    backends,
    url: service.url,
    source: source as TransactionSource, // the coordinator has opened it
    bus,
    target,
    get log() {
      return lines.map((line) => JSON.parse(line))
    },
    call,
    queue: (id, data = id, realm) =>
      call(
        `/processes/${process}/transactions`,
        postJson({ TransactionID: id, InitialData: data, Realm: realm }),
      ),
    async run(id, replay) {
      const query = replay === undefined ? '' : `?replay=${replay}`
      const response = await call(
        `/processes/${process}/transactions/${encodeURIComponent(id)}${query}`,
      )
      return response.json() as ReturnType<Fixture['run']>
    },
    async reached(id, status, replay) {
      let last: Awaited<ReturnType<Fixture['run']>> | undefined
      await until(async () => {
        last = await fixture.run(id, replay)
        return last.Status === status
      }).catch(() => {
        throw new Error(`not ${status} in time: ${JSON.stringify(last)}`)
      })
      return last as NonNullable<typeof last>
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
  return fixture
}

/**
 * Opens backends before each test. After the test, they are closed, and before them what was opened on them: the
 * coordinators that `start` has started, and what was given to `use`, in the reverse order.
 */
export function onBackends(kind: Backends['kind'], steps?: Steps, defaults: FixtureOptions = {}) {
  let backends: Backends
  let opened: AsyncDisposableStack
  beforeEach(async () => {
    opened = new AsyncDisposableStack()
    backends = opened.use(await openBackends(kind, steps))
  })
  afterEach(() => opened.disposeAsync())
  return {
    backends: (): Backends => backends,
    use: <Resource extends AsyncDisposable>(resource: Resource): Resource => opened.use(resource),
    start: async (options: FixtureOptions = {}): Promise<Fixture> =>
      opened.use(await startFixture(backends, { ...defaults, ...options })),
  }
}

/** Waits until so many requests to the coordinator wait for the end of their runs. */
export const requestsWait = (host: Fixture, count: number): Promise<void> =>
  until(async () => {
    const metrics = await (await fetch(`${host.url}/metrics`)).text()
    return metrics.includes(`coordinator_waiting_requests{service="coordinator"} ${count}\n`)
  })

/**
 * Connects to `/events` and collects only the events of one transaction, because runs of previous tests may
 * still publish events. `isWholeAtEnd` is false if the stream was truncated.
 */
export async function watchEvents(
  host: Fixture,
  transactionId: string,
  { lastId, query = '' }: { readonly lastId?: string | undefined; readonly query?: string } = {},
) {
  const controller = new AbortController()
  const response = await host.call(`/events${query}`, {
    signal: controller.signal,
    headers: lastId === undefined ? {} : { 'Last-Event-ID': lastId },
  })
  const seen: { Status: string; StepName: string }[] = []
  const ids: string[] = []
  let isReset = false
  const read = async (): Promise<void> => {
    for await (const received of readEvents(response)) {
      if (received?.name === 'reset') isReset = true
      if (received?.name !== 'transaction') continue
      const event = JSON.parse(received.data)
      if (event.TransactionID !== transactionId) continue
      seen.push(event)
      ids.push(received.id ?? '')
    }
  }
  const isWholeAtEnd = read().then(
    () => true,
    () => false,
  )
  return { seen, ids, isReset: () => isReset, isWholeAtEnd, stop: () => controller.abort() }
}
