import { hostname } from 'node:os'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import { openAccessKeys } from '@integration-host/shared/access/access-keys'
import {
  chooseProxy,
  logForwardProxies,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { honoListener, listen } from '@integration-host/shared/http/http-server'
import { systemClock } from '@integration-host/shared/process/clock'
import { type RunningService, StartupError } from '@integration-host/shared/process/lifecycle'
import { changesTopology, signalKey } from '@integration-host/shared/contracts/topology'
import {
  createEntryEventPublisher,
  createEventPublisher,
} from '@integration-host/shared/messaging/provider-events'
import { createMetrics } from '@integration-host/shared/observability/metrics'
import { createFileRemover } from './adapters/files/remove-files.ts'
import { watchDataFolder } from './adapters/files/data-folder.ts'
import { createThreadedFiles } from './adapters/files/threaded-files.ts'
import { loadedOf, type LoadedProcesses, loadProcesses } from './adapters/folder/processes.ts'
import { createLoadReport } from './adapters/folder/report-failures.ts'
import { openReceivers } from './adapters/files/webhooks-file.ts'
import { createWebhookPost } from './adapters/http/webhook-post.ts'
import { createHttpCaller } from './adapters/http/http-call.ts'
import { createProbe } from './adapters/http/probe.ts'
import { createDeadLetterQueue } from './worker/dead-letter-queue.ts'
import { createStartQueue } from './start/start-queue.ts'
import { createConnectedCompanies } from './adapters/token-service/connected-companies.ts'
import { countWaitingMessages } from './worker/waiting-messages.ts'
import { createLanes } from './worker/lanes.ts'
import { createStepQueue, createTraceparents } from './worker/step-queue.ts'
import { joinTransactionEvents, createTransitionFeed } from './events/transaction-events.ts'
import { createApp } from './app.ts'
import { createChangeCursors } from './change-feed/change-cursors.ts'
import { CHANGES_QUEUES, ON_QUEUES } from './change/change-intake.ts'
import { createChangeWaits } from './change/change-waits.ts'
import { CHANGE_LOOK, createChangeLook, createLooks } from './change/look.ts'
import { createSubscriptions } from './change/subscriptions.ts'
import { CHANGE_FEED, createChangeFeed } from './change-feed/sweep.ts'
import { type EmbeddedConfig, probesOf } from './config.ts'
import type { Core, CoordinatorAdapters } from './core.ts'
import { startCompanyGate } from './company-pause/company-gate.ts'
import { createCompanyPauses } from './company-pause/company-pauses.ts'
import { createDecisionLinks } from './decision/decision-links.ts'
import { createDecisions, hasDecisions } from './decision/decisions.ts'
import { countEntries, ENTRIES, recordedEntry } from './entry/book-entry.ts'
import { createEntryProof } from './entry/prove-entries.ts'
import { ENTRIES_QUEUES } from './entry/entry-intake.ts'
import { createEntryKeeper } from './entry/entry-keeper.ts'
import { createMarks } from './entry/marks.ts'
import { followCredentials } from './credentials.ts'
import { startHousekeeping } from './housekeeping.ts'
import { createCoordinatorMetrics, payloadKeysOf } from './metrics.ts'
import {
  bindSettings,
  hasEvents,
  isStartable,
  outlineOf,
  type ProcessDefinition,
} from './step/definition.ts'
import { createOperationStore } from './bulk/bulk-operation-store.ts'
import { createPauseStore } from './run/pause.ts'
import { createPayloads } from './run/payload.ts'
import { createSealedSource } from './run/sealed-source.ts'
import type { WebhooksOf } from './run/transaction-source.ts'
import { UNDO_CANCELLED } from './run/transitions.ts'
import type { Audit } from './run/audit.ts'
import { createAuditor } from './worker/auditor.ts'
import { createConnectivity } from './worker/connectivity.ts'
import {
  countDeadLetters,
  createDeadLetterOperations,
} from './dead-letter/dead-letter-operations.ts'
import { createDeadLetterStore } from './dead-letter/dead-letter-store.ts'
import { recordWithoutChange } from './run/action.ts'
import { createErasure } from './erasure/erasure.ts'
import { createRunActions } from './worker/run-actions.ts'
import { startOperationRunner } from './bulk/run-bulk-operations.ts'
import { createStepsInFlight } from './worker/steps-in-flight.ts'
import { createRemoveFilesOfRuns } from './worker/run-files.ts'
import { startFollowUps } from './worker/follow-ups.ts'
import { createStoreRetry } from './worker/store-retry.ts'
import { createEventStreams } from './events/event-stream-routes.ts'
import { createReadLog } from './routes/read-log.ts'
import { createRunEnds } from './routes/run-ends.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import { createTakeBack } from './take-back/take-back.ts'
import { createTakeBackProcess, TAKE_BACK } from './take-back/take-back-process.ts'
import { createClosingDates } from './step/closing-dates.ts'
import { createSealedCursors } from './routes/sealed-cursors.ts'
import { needsChangeFeed, needsLooks, requireFreeName, startTriggers } from './triggers.ts'
import { webhooksOfEntry, webhooksOfTransition } from './webhook/webhook.ts'
import { createWebhookProcess } from './webhook/deliver.ts'
import { dropWebhooks } from './webhook/drop-webhooks.ts'
import { startWebhooks } from './webhook/start-webhooks.ts'
import type { PausedNames } from './worker/gate.ts'
import { createTransitionPublisher } from './worker/transition-publisher.ts'
import { createWorker, type Worker } from './worker/worker.ts'

/** Returns the processes; OrderProcess, which belongs to the demo, calls demo-api at the given address. */
const linkedToDemo = (
  definitions: LoadedProcesses['definitions'],
  demoApiUrl: string,
): LoadedProcesses['definitions'] =>
  new Map(
    [...definitions].map(([key, process]) => [
      key,
      process.name === 'OrderProcess' && 'demoApiUrl' in process.settings
        ? bindSettings(process, { ...process.bound?.values, demoApiUrl })
        : process,
    ]),
  )

const DAY_MS = 86_400_000

/** Starts the coordinator on a message bus, which the caller opens and closes. */
export async function startCoordinator(
  config: EmbeddedConfig,
  adapters: CoordinatorAdapters,
): Promise<RunningService> {
  const { logger: log, health, bus, clock = systemClock, timing = {} } = adapters
  const { random = Math.random, readsChangeFeed = true, serve } = adapters
  const { now } = clock
  const { PREFETCH: prefetch } = config
  const serviceMetrics = adapters.metrics ?? createMetrics('coordinator')
  const payloadKeys = payloadKeysOf(config.PAYLOAD_KEYS, serviceMetrics)
  const owner = `${hostname()}:${process.pid}:${crypto.randomUUID().slice(0, 8)}`
  const retryStore = createStoreRetry(random)
  const { processes: given = await loadProcesses() } = adapters
  const unlinked = loadedOf(given)
  const loaded = {
    ...unlinked,
    definitions: linkedToDemo(unlinked.definitions, config.DEMO_API_URL),
  }
  for (const { name, bound } of loaded.definitions.values())
    if (bound === null) throw new StartupError(`the settings of the process ${name} are not bound`)

  // The parts are opened from top to bottom and closed from bottom to top. On shutdown the service first stops
  // accepting work, then waits for the steps in flight, and then closes the parts that publish the transitions of these
  // steps.
  await using stack = new AsyncDisposableStack()
  const receivers = stack.use(
    openReceivers(config, { logger: log, health, metrics: serviceMetrics }),
  )
  const webhooksOf: WebhooksOf | undefined =
    receivers === null ? undefined : (run) => webhooksOfTransition(receivers.current(), run)
  const opened = stack.use(await adapters.openSource(webhooksOf))
  const source = createSealedSource(opened, createPayloads(payloadKeys))
  const proxyFor = chooseProxy(config, [
    config.DEMO_API_URL,
    config.GATEWAY_URL,
    config.TOKEN_SERVICE_URL,
  ])
  logForwardProxies(config, log)
  const processes = new Map(loaded.definitions)
  requireFreeName(processes, WEBHOOK_PROCESS)
  if (receivers !== null) {
    const post = createWebhookPost({ ...timing.webhooks, proxyFor })
    const { current } = receivers
    const deps = { receivers: current, post, now, random, timing: timing.webhooks ?? {} }
    processes.set(WEBHOOK_PROCESS, createWebhookProcess(deps))
  }
  const pauses = createPauseStore(source)
  const bulkOperations = createOperationStore(source)
  const changeCursors = createChangeCursors(source)
  const closingDates = createClosingDates(source)
  const subscriptions = createSubscriptions(source)
  const entryKeeper = createEntryKeeper({ source, payloadKeys })
  const publishEntry = createEntryEventPublisher(bus)
  const proof = createEntryProof({
    source,
    keeper: entryKeeper,
    async publish(event) {
      if (receivers !== null) await source.addWebhooks(webhooksOfEntry(receivers.current(), event))
      await publishEntry(event)
    },
  })
  const changeFeed = createChangeFeed({
    cursors: changeCursors,
    subscriptions,
    ownKeys: () =>
      [...processes.values()].flatMap((process) =>
        [ON_QUEUES, CHANGES_QUEUES].flatMap(({ keysOf }) => keysOf(process)),
      ),
    publish: createEventPublisher(bus),
    proof,
    now,
  })
  const hasEntries = async (): Promise<boolean> =>
    (await source.records(ENTRIES).page({ by: ['RecordedAt', 'EntryID'], limit: 1 })).length > 0
  /** The change feed is read if a process subscribes to changes, and as soon as there is an entry to compare. */
  const addsChangeFeed = async (): Promise<boolean> =>
    readsChangeFeed && (needsChangeFeed(processes) || (await hasEntries()))
  if (await addsChangeFeed().catch(() => false)) processes.set(CHANGE_FEED, changeFeed)
  const changeWaits = createChangeWaits(source)
  const changeLook = createChangeLook({
    source,
    waits: changeWaits,
    processes,
    publisher: () => publisher,
  })
  if (needsLooks(processes)) processes.set(CHANGE_LOOK, changeLook)
  /** The names of the loaded processes. The name of a process that is loaded later is appended. */
  const processNames = [...processes.keys()]
  const reportLoaded = createLoadReport({
    logger: log,
    health,
    metrics: serviceMetrics,
    isWatched: adapters.watchProcesses !== undefined,
  })
  reportLoaded(loaded)
  stack.use(watchDataFolder(config.DATA_DIR, health.dependency('data-folder', 'optional')))
  const { call = stack.use(createHttpCaller(proxyFor)).call } = adapters
  const files = stack.use(createThreadedFiles())
  const feed = createTransitionFeed()
  const traceparentOf = createTraceparents()
  const queue = createStepQueue(bus, owner, traceparentOf)
  const startMessages = createStartQueue(bus, owner)
  const signalMessages = createStartQueue(bus, owner, signalKey)
  const deadLetters = createDeadLetterQueue(bus, owner)
  const deadLetterStore = createDeadLetterStore(source)
  const countDead = () => countDeadLetters(deadLetterStore, deadLetters, processNames)
  const metrics = createCoordinatorMetrics(serviceMetrics, processes, countDead, () =>
    countWaitingMessages(bus, processes.values()),
  )
  const declare = async (definition: ProcessDefinition): Promise<void> => {
    await queue.declare(outlineOf(definition))
    if (isStartable(definition)) await startMessages.declare(definition.name)
    if (hasEvents(definition)) await signalMessages.declare(definition.name)
    // A process that subscribes to events has a queue of them. On a durable bus, this queue still has the bindings that
    // earlier coordinators declared, and the intake (event-intake.ts) adds and removes bindings. On any other bus, the
    // queue is new. Its bindings are declared here, because an event that arrives before the first check of the intake
    // would otherwise be lost.
    if (bus.isDurable) return
    const { name } = definition
    for (const { queueOf, keysOf } of [ENTRIES_QUEUES, ON_QUEUES, CHANGES_QUEUES]) {
      const keys = keysOf(definition)
      if (keys.length > 0) await bus.declare(changesTopology(queueOf(name), name, keys))
    }
  }
  await Promise.all([...processes.values()].map(declare))
  const addProcess = async (definition: ProcessDefinition): Promise<void> => {
    await declare(definition)
    if (!processes.has(definition.name)) processNames.push(definition.name)
    processes.set(definition.name, definition)
  }
  const stepsInFlight = createStepsInFlight()
  const {
    companies = createConnectedCompanies({
      url: config.TOKEN_SERVICE_URL,
      key: config.SERVICE_API_KEY[0],
    }),
  } = adapters
  const lanes = createLanes({ processes, prefetch, clock })
  const events = stack.use(
    await joinTransactionEvents(bus, owner, (event) => {
      feed.add(event)
      lanes.left(event)
      // Another replica has cancelled the run. If a call of the run is in flight on this replica, the call must be
      // aborted here.
      if (event.Status === 'Cancelled' || event.ErrorClass === UNDO_CANCELLED)
        stepsInFlight.abortCancelled(event)
    }),
  )
  /** Called for each transition that this replica makes. */
  const listeners = [events.publishEvent]
  const publisher = createTransitionPublisher({
    queue,
    feed,
    lanes,
    listeners,
    log,
    clock,
    processes,
  })
  stack.defer(() => publisher.flush())
  const core: Core = {
    log,
    clock,
    random,
    intervalMs: config.LOCAL_PULL_SECONDS * 1_000,
    source,
    deadLetterStore,
    bus,
    pauses,
    processes,
    queue,
    lanes,
    stepsInFlight,
    publisher,
    metrics,
    retryStore,
    owner,
  }
  if (receivers !== null) {
    const webhooks = stack.use(
      await startWebhooks({
        ...core,
        receivers: receivers.current,
        publish: publisher.publishSteps,
        onBacklog: metrics.setWebhookBacklog,
      }),
    )
    listeners.push(webhooks.onTransition)
  }
  const followUps = stack.use(startFollowUps({ ...core, onRecovered: metrics.countRecovered }))
  listeners.push(followUps.onTransition)
  const probes = probesOf(config).map((probe) => createProbe(probe, proxyFor))
  const connectivity = createConnectivity({ probes, ...timing })
  let ownUrl = `http://127.0.0.1:${config.PORT}`
  const decisionLinks = createDecisionLinks({
    source,
    payloadKeys,
    baseUrl: () => config.DECISIONS_URL ?? ownUrl,
  })
  // The key is encrypted again after a rotation of PAYLOAD_KEYS, before an operator removes the old payload key. If the
  // store is unavailable, the first use of a link does it.
  if ([...processes.values()].some(hasDecisions)) void decisionLinks.ready().catch(() => {})
  const processSettings = { dataDir: config.DATA_DIR }
  const removeFiles = createRemoveFilesOfRuns(
    processes,
    processSettings,
    createFileRemover(config.DATA_DIR),
  )
  const looks = createLooks({ ...core, waits: changeWaits, process: changeLook })
  const worker = stack.use(
    createWorker({
      ...core,
      beginWatch: (...args) => looks.begin(...args),
      settleFamilies: (run) => followUps.settleFamilies(run),
      call,
      files,
      gateway: {
        url: config.GATEWAY_URL,
        key: config.SERVICE_API_KEY[0].reveal(),
        faultOf: config.PROVIDER_PROFILE.accounting.faultOf,
        newObjectVisibleMs: config.PROVIDER_PROFILE.accounting.newObjectVisibleMs,
      },
      settings: processSettings,
      checkOnline: connectivity.check,
      closingDates,
      decisionLinks,
      entryKeeper: {
        entriesOf(...args) {
          void readFeed(true).catch((error: unknown) =>
            log.warn({ err: error }, 'the change feed is not read yet; this is tried again'),
          )
          return entryKeeper.entriesOf(...args)
        },
      },
      stepBooks: {
        marks: createMarks({ source, keeper: entryKeeper }),
        recordedEntry: (query) => recordedEntry(source, query),
      },
      traceparentOf,
      prefetch,
      waitForClock: adapters.waitForClock,
      count: metrics.countStep,
      ...timing,
    }),
  )
  const companyPauses = createCompanyPauses(source)
  const companyGate = stack.use(
    startCompanyGate({
      ...core,
      pauses: companyPauses,
      setPaused: (realms) => worker.setPausedCompanies(realms),
    }),
  )
  let isOnline = false
  stack.use(
    connectivity.watch((online) => {
      isOnline = online
      metrics.setOnline(online)
      worker.setOnline(online)
    }),
  )
  const pausable: Pick<Worker, 'setPaused'>[] = [worker]
  const setPaused = (paused: PausedNames): void => {
    for (const one of pausable) one.setPaused(paused)
  }
  const runActions = createRunActions({
    ...core,
    worker: { setPaused, queueAndStart: worker.queueAndStart },
  })
  async function beginFeed(): Promise<void> {
    await addProcess(changeFeed)
    worker.followDefinitions()
    triggers.followDefinitions()
  }
  let beginning: Promise<void> | null = null
  /** Begins to read the change feed, if it is needed. Resolves with whether it is read. */
  async function readFeed(isNeeded: boolean): Promise<boolean> {
    if (processes.has(CHANGE_FEED)) return true
    if (!readsChangeFeed || !(isNeeded || (await addsChangeFeed()))) return false
    // Every attempt that writes asks. Each would declare the queues, and a busy broker would be minutes behind.
    await (beginning ??= beginFeed().finally(() => {
      beginning = null
    }))
    return true
  }
  const triggers = stack.use(
    startTriggers({
      ...core,
      cursors: changeCursors,
      readFeed: () => readFeed(false),
      subscriptions,
      looks,
      companies,
      runActions,
      remotePullMs: config.REMOTE_PULL_SECONDS * 1_000,
    }),
  )
  pausable.push(triggers)
  if (adapters.watchProcesses !== undefined)
    stack.use(
      adapters.watchProcesses(
        async ({ definitions, failures }) => {
          for (const definition of definitions.values()) await addProcess(definition)
          if (await addsChangeFeed()) await addProcess(changeFeed)
          if (needsLooks(processes)) await addProcess(changeLook)
          worker.followDefinitions()
          triggers.followDefinitions()
          reportLoaded({ definitions: processes, failures })
        },
        (error) =>
          log.error(
            { err: error, remedy: 'save a process file again, or restart' },
            'changed process files could not be applied',
          ),
      ),
    )
  const takeBackProcess = createTakeBackProcess({
    source,
    operations: bulkOperations,
    entryKeeper,
    closingDates,
    faultOf: config.PROVIDER_PROFILE.accounting.faultOf,
  })
  const takeBack = createTakeBack({
    ...core,
    process: takeBackProcess,
    async load() {
      if (processes.get(TAKE_BACK) === takeBackProcess) return
      if (processes.has(TAKE_BACK))
        throw new IntegrationError(
          'process_built_in',
          `a process of this installation has the name of the built-in process ${TAKE_BACK}`,
        )
      await addProcess(takeBackProcess)
      worker.followDefinitions()
    },
  })
  if ((await source.storedProcesses().catch(() => null))?.has(TAKE_BACK) === true)
    await takeBack.load()
  const access = stack.use(openAccessKeys(config, { logger: log, health, metrics: serviceMetrics }))
  const operationRunner = stack.use(
    startOperationRunner({
      ...core,
      keys: access.keys,
      store: bulkOperations,
      runActions,
      takeBack,
      processes: processNames,
      onCount: metrics.setOperations,
      onRun: metrics.countBulkRun,
      ...(timing.renewMs !== undefined && { renewMs: timing.renewMs }),
    }),
  )
  const erase = createErasure({
    ...core,
    cancel: (...args) => runActions.cancel(...args),
    dropWebhooks: (realm) => dropWebhooks(source, realm),
    removeFiles,
    endPause: (realm) => companyPauses.end(realm),
    isLoaded: (process) => processes.has(process),
  })
  stack.use(
    await followCredentials({
      ...core,
      cursors: changeCursors,
      closingDates,
      changeWaits,
      runActions,
      triggers,
      erase,
    }),
  )
  const auditor = createAuditor({
    ...core,
    processes: processNames,
    isOnline: () => isOnline,
    now,
  })
  let lastAudit: Audit | null = null
  stack.use(
    startHousekeeping({
      ...core,
      config,
      bulkOperations,
      sealed: payloadKeys === null ? null : { source: opened, keys: payloadKeys },
      deadLetters,
      processNames,
      worker,
      setPaused,
      auditor,
      async onAudit(audit) {
        lastAudit = audit
        // Another replica has queued runs of it, and has ended since.
        if (TAKE_BACK in audit.unknownProcesses) await takeBack.load()
        await metrics.setAudit(audit)
        metrics.setEntriesOutside(await countEntries(source, { checkedSinceMs: DAY_MS }))
      },
      removeFiles,
      changeWaits,
    }),
  )
  const streams = createEventStreams({
    feed,
    now: () => performance.now(),
    onCut: metrics.countCutStream,
  })
  metrics.watchStreams(() => streams.size)
  const runEnds = createRunEnds({ feed, source })
  metrics.watchWaiting(() => runEnds.size)
  const exportsEnd = new AbortController()
  const app = createApp({
    ...core,
    decisions: createDecisions({ source, processes, runActions, links: decisionLinks, now }),
    product: config,
    logger: log,
    health,
    metrics: serviceMetrics,
    keys: access.keys,
    runActions,
    operationRunner,
    takeBack,
    schedules: triggers.schedules,
    erase,
    shutdown: exportsEnd.signal,
    bulkOperations,
    changeCursors,
    companyPauses,
    companyGate,
    worker,
    auditor,
    countDeadLetters: countDead,
    deadLetterOperations: createDeadLetterOperations({ ...core, runActions, looks }),
    cursors: createSealedCursors(config.SERVICE_API_KEY),
    streams,
    runEnds,
    recordRead: createReadLog({
      record: (action) => recordWithoutChange(source, action),
      now: Date.now,
    }),
    lastAudit: () => lastAudit,
  })
  const { HOST: host, PORT: port } = config
  const server = stack.use(
    await (serve?.(app) ?? listen(honoListener(app), { host, port, metrics: serviceMetrics })),
  )
  if (server.url !== '') ownUrl = server.url
  // The event streams are ended before the server stops. Otherwise the server would wait for them, because they never
  // end by themselves. Requests that wait for the end of a run get a response.
  stack.use(streams)
  stack.use(runEnds)
  stack.defer(() => exportsEnd.abort())
  const owned = stack.move()
  return { url: server.url, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}
