/** A host for tests: the coordinator with a store in memory, fake targets, and a clock that the test moves. */
import type {
  OperationView,
  TakenObject,
  TakenObjectPage,
  DeadLetterPage,
} from '@integration-host/shared/contracts/operations'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { HttpCall } from '@integration-host/coordinator/http-call'
import { createHttpCaller } from '@integration-host/coordinator/http-caller'
import { LATE_ERROR } from '@integration-host/coordinator/perform-step'
import type { ProcessDefinition } from '@integration-host/coordinator/process'
import { watchedKeysOf } from '@integration-host/coordinator/change-place'
import { createMemoryTransactionSource } from '@integration-host/coordinator/memory-transaction-source'
import {
  type ChangeTrigger,
  debounceKeyOf,
  routingKeysOf,
} from '@integration-host/coordinator/change-trigger'
import {
  PROVIDER_EXCHANGE,
  type ProviderEvent,
  providerRoutingKey,
} from '@integration-host/shared/contracts/provider-event'
import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { createInProcessBus } from '@integration-host/shared/messaging/in-process/message-bus'
import { createLogger } from '@integration-host/shared/observability/logger'
import { attributeErrors } from '@integration-host/shared/process/error-owner'
import { type CompanyOptions, createCompanies, type TestCompany } from './company.ts'
import { type Duration, milliseconds } from './duration.ts'
import {
  createFakeTarget,
  createTargetCaller,
  type FakeTarget,
  type ServedTarget,
} from './fake-target.ts'
import {
  loadTestProcesses,
  type ProcessSettingValues,
  type TestProcess,
} from './load-test-processes.ts'
import { requireKnownMembers, requireOneOf } from './known-members.ts'
import { GATEWAY_URL, type KillPoint, killPoints, type Replica, startReplica } from './replica.ts'
import { providerEventOf } from './provider-event-of.ts'
import { createTestRun, type RefreshedRun, type RunView, type TestRun } from './test-run.ts'
import { createVirtualClock } from './virtual-clock.ts'
import { createWorkInFlight } from './work-in-flight.ts'

/** The options of {@link startTestHost}. */
export interface TestHostOptions {
  /** The processes to test: what `defineProcess` returns, or the path of a folder with process files. */
  readonly processes: TestProcess | readonly TestProcess[]
  /** The values of the settings that the processes declare, secrets included. The environment is not read. */
  readonly settings?: ProcessSettingValues
  /** The time at which the clock starts, such as `2026-11-20T08:00:00Z`. Default: the current time. */
  readonly startsAt?: string
  /**
   * The milliseconds of real time that a step may take for its own work. A step that takes longer fails the test.
   * Default: 5,000.
   */
  readonly realTimeLimitMs?: number
}

/** The options with which a transaction is queued. */
export interface RunOptions {
  /** The company of the transaction. */
  readonly realm?: string
  readonly tags?: Readonly<Record<string, string>>
  /** `high`: the run gets its turns before the others. `normal` by default. */
  readonly priority?: 'high' | 'normal'
  /**
   * The run does not start before this time on the clock of the host. The time is a string in RFC 3339 format, or a
   * number of seconds from now.
   */
  readonly notBefore?: string | number
  /**
   * Requests with the same key, process and realm start one run, with the data of the last request. The run starts
   * `Seconds` after the last request, and at most `MaxSeconds` (10 times `Seconds` by default) after the first request.
   * `run` returns this run.
   */
  readonly debounce?: {
    readonly Key: string
    readonly Seconds: number
    readonly MaxSeconds?: number
  }
}

const HOST_MEMBERS = [
  'processes',
  'settings',
  'startsAt',
  'realTimeLimitMs',
] satisfies (keyof TestHostOptions)[]
const RUN_MEMBERS = [
  'realm',
  'tags',
  'priority',
  'notBefore',
  'debounce',
] satisfies (keyof RunOptions)[]

/** A change in the books of a company. */
export interface BookChange {
  readonly realm: string
  /** The id of the changed object. */
  readonly id: string
  readonly operation: ChangeTrigger['operations'][number]
  /** The time of the change, in ISO 8601. Default: the time of the host. */
  readonly at?: string
  /** Only for a merge: the id of the object that was merged into `id` and deleted. */
  readonly deletedId?: string
}

/** A coordinator that runs the processes of a test, on a clock that the test moves. */
export interface TestHost extends AsyncDisposable {
  /** The time on the clock of the host. */
  readonly now: Date
  /** The folder for the files of the steps; it is removed with the host. */
  readonly dataDir: string
  /** Creates a fake target for all calls to URLs that begin with `url`. */
  target(url: string): FakeTarget
  /**
   * Connects a company at the sandbox provider. Steps reach the company's books with `credential: 'ACC-<realm>'`. The
   * gateway's rules for tokens, repeated calls and cool-downs apply to these calls.
   */
  company(realm: string, options?: CompanyOptions): Promise<TestCompany>
  /**
   * Queues a transaction, and runs what is due now. A step that waits for its next attempt runs in a later `advance`.
   *
   * @throws {Error} the coordinator rejects the transaction, or a step calls an address that has no target.
   */
  run(
    process: string | { readonly name: string },
    id: string,
    data?: unknown,
    options?: RunOptions,
  ): Promise<TestRun>
  /**
   * Reports a change in the books of a company, as the provider does, and runs what is due now. Returns the run of each
   * process whose `on` names the change. If the same change with the same `at` is reported again, the same runs are
   * returned.
   *
   * @throws {Error} the company is not connected, no process names the change, or a process rejects its data.
   */
  change(entity: ChangeTrigger['entity'], change: BookChange): Promise<readonly TestRun[]>
  /** Returns the latest 500 runs of a process, oldest first. They include the runs that a schedule has started. */
  runs(process: string | { readonly name: string }): Promise<readonly TestRun[]>
  /**
   * Takes back what the runs of a process have created in the books of companies, as `operations start --action take-back`
   * does, and returns the objects, in the order of their entity and id. With `dryRun`, only looks what could be taken back.
   */
  takeBack(
    process: string | { readonly name: string },
    options?: { readonly dryRun?: boolean },
  ): Promise<readonly TakenObject[]>
  /**
   * Moves the clock and runs everything that becomes due meanwhile: schedules, retries, waits, time limits, the
   * recovery of leases, and retention.
   *
   * @throws {Error} a step calls an address that has no target, or does not end.
   */
  advance(duration: Duration): Promise<void>
  /**
   * Kills the worker when a step next reaches this point. With `step`, only the step of that name counts. Another
   * worker starts at once, and continues the run when the lease of the dead worker has expired, which takes at most two
   * minutes.
   */
  kill(point: KillPoint, step?: string): void
}

/**
 * Starts a host that runs the processes in this OS process, with data that is removed when the host is disposed of.
 *
 * @throws {Error} a process or a setting is not usable.
 */
export async function startTestHost(options: TestHostOptions): Promise<TestHost> {
  requireKnownMembers('the argument of startTestHost', options, HOST_MEMBERS)
  const { settings = {}, startsAt, realTimeLimitMs = 5_000 } = options
  const startTime = startsAt === undefined ? Date.now() : Date.parse(startsAt)
  if (Number.isNaN(startTime)) throw new TypeError(`startsAt: ${startsAt} is not a time`)
  const given = [options.processes].flat() as readonly TestProcess[]
  const processes: readonly ProcessDefinition[] = await loadTestProcesses(given, settings)

  await using stack = new AsyncDisposableStack()
  const dataDir = await mkdtemp(join(tmpdir(), 'integration-host-test-'))
  stack.defer(() => rm(dataDir, { recursive: true, force: true }))
  const work = createWorkInFlight(() => clock)
  const clock = createVirtualClock({
    startsAt: startTime,
    track: (call) => void work.track(call),
    settled,
    isIdle: work.hasNoStep,
  })
  stack.use(attributeErrors())
  const logger = createLogger('test host', 'error', {
    write(line) {
      const { msg, process, step, err } = JSON.parse(line) as Readonly<
        Record<'msg' | 'process' | 'step', string>
      > & { readonly err?: { readonly message?: string } }
      if (msg !== LATE_ERROR) return
      problems.add(`${process}.${step}: ${LATE_ERROR}: ${err?.message ?? 'not an error'}`)
    },
  })
  const source = stack.use(
    await createMemoryTransactionSource(dataDir, { now: clock.now, openFile: openNoFile }),
  )
  const bus = stack.use(createInProcessBus(logger, clock))
  const targets: ServedTarget[] = []
  const runs = new Set<RefreshedRun>()
  /** Errors that steps have caused, for example a call to an unknown target. `run` and `advance` throw them. */
  const problems = new Set<string>()
  let armed: { readonly point: KillPoint; readonly step: string | undefined } | null = null

  const companies = stack.use(
    createCompanies({ clock, work, bus, logger, settle: () => runUntil(clock.now()) }),
  )
  const callTarget = createTargetCaller({
    targetOf: (url) => targetOf(url),
    work,
    onUnknownAddress(method, { origin, pathname }) {
      const step = work.currentStep()
      const who = step === null ? 'a step' : `the step ${step.process}.${step.step}`
      problems.add(
        `${who} called ${method} ${origin}${pathname}, which has no target: create one with host.target('${origin}')`,
      )
    },
  })
  const servers = stack.use(createHttpCaller())
  const targetOf = (url: URL): ServedTarget | undefined =>
    targets.find((target) => target.serves(url))
  const callerFor = (url: URL): HttpCall => {
    if (url.origin === GATEWAY_URL) return companies.call
    // A loopback address without a fake target belongs to a real server that the test has started on this machine.
    return isLoopback(url.hostname) && targetOf(url) === undefined ? servers.call : callTarget
  }
  const call: HttpCall = (sent, limits) => callerFor(sent.url)(sent, limits)
  const startNextReplica = (): Promise<Replica> =>
    startReplica({
      source,
      bus,
      call,
      companies: companies.connected,
      clock,
      work,
      processes,
      dataDir: join(dataDir),
      logger,
      onActivity: () => clock.onActivity(),
      diesAt(point) {
        const isReached =
          armed?.point === point &&
          (armed.step === undefined || armed.step === work.currentStep()?.step)
        if (isReached) armed = null
        return isReached
      },
    })
  let replica = await startNextReplica()
  stack.defer(() => replica[Symbol.asyncDispose]())
  await settled()

  /** Resolves when everything that is due now is done. A worker that has died in the meantime is replaced. */
  async function settled(): Promise<void> {
    await work.settled(realTimeLimitMs)
    while (replica.isDead) {
      const dead = replica
      replica = await startNextReplica()
      await dead[Symbol.asyncDispose]()
      await work.settled(realTimeLimitMs)
    }
  }

  async function request(path: string, body?: object): Promise<RunView> {
    const init =
      body === undefined
        ? {}
        : {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify(body),
          }
    const response = await work.track(replica.request(path, init))
    if (response.ok) return (await response.json()) as RunView
    const problem = (await response.json()) as {
      title?: string
      detail?: string
      errors?: string[]
    }
    const { title, detail, errors = [] } = problem
    // The detail of invalid data consists of its errors.
    const isWhole = errors.length > 0 && detail === errors.join('; ')
    const text = isWhole ? [] : [detail ?? title ?? `the request failed with ${response.status}`]
    throw new Error([...text, ...errors].join('\n'))
  }

  const pathOf = (process: string, id?: string): string =>
    `/processes/${encodeURIComponent(process)}/transactions${id === undefined ? '' : `/${encodeURIComponent(id)}`}`

  /** Runs everything that is due until a time and reads all runs again. Throws the errors in `problems`. */
  async function runUntil(time: number): Promise<void> {
    await clock.moveTo(time)
    for (const run of runs) {
      const path = `${pathOf(run.process, run.id)}?replay=${run.replayId}`
      // The coordinator no longer returns a run that retention has deleted. The test then keeps the last view of the
      // run.
      run.view = await request(path).catch(() => run.view)
    }
    if (problems.size === 0) return
    const message = [...problems].join('\n')
    problems.clear()
    throw new Error(message)
  }

  async function testRunOf({ Process, TransactionID, ReplayID }: RunView): Promise<TestRun> {
    const path = `${pathOf(Process, TransactionID)}?replay=${ReplayID}`
    const run = createTestRun(await request(path), { act, createLink })
    runs.add(run)
    await runUntil(clock.now())
    return run
  }

  async function act(run: TestRun, action: string, body: object = {}): Promise<TestRun> {
    const changed = await request(`${pathOf(run.process, run.id)}/${action}`, body)
    if (changed.ReplayID !== run.replayId) return testRunOf(changed)
    await runUntil(clock.now())
    return run
  }

  async function takenObjects(path: string): Promise<readonly TakenObject[]> {
    const found: TakenObject[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
      const page = (await request(path + query)) as unknown as TakenObjectPage
      found.push(...page.items)
      cursor = page.next_cursor
    }
    return found
  }

  async function createLink(run: TestRun, name: string, body: object): Promise<string> {
    const path = `${pathOf(run.process, run.id)}/events/${encodeURIComponent(name)}/links`
    const created = (await request(path, body)) as unknown as { readonly Url: string }
    return created.Url
  }

  /** Returns the run of a change. If another run has absorbed the change, returns that run. */
  async function runOf(process: string, event: ProviderEvent): Promise<RunView> {
    const run = await request(pathOf(process, event.Id)).catch(() => null)
    if (run !== null) return run
    const query = `limit=500&realm=${encodeURIComponent(event.Realm)}`
    const page = (await request(`${pathOf(process)}?${query}`)) as unknown as {
      readonly items: readonly (RunView & { readonly DebounceKey: string | null })[]
    }
    const absorbing = page.items.find(({ DebounceKey }) => DebounceKey === debounceKeyOf(event))
    if (absorbing !== undefined) return absorbing
    throw new Error(`the change started no run of ${process}: ${await rejectionOf(process)}`)
  }

  /** Returns the reason of the latest dead letter of a process. */
  async function rejectionOf(process: string): Promise<string> {
    const path = `/processes/${encodeURIComponent(process)}/dead-letters?limit=1`
    const page = (await request(path)) as unknown as DeadLetterPage
    return page.items[0]?.Reason ?? 'there is no dead letter'
  }

  const owned = stack.move()
  return {
    get now() {
      return new Date(clock.now())
    },
    dataDir,
    target(url) {
      const target = createFakeTarget(url, clock.now)
      targets.unshift(target)
      return target
    },
    company: (realm, companyOptions = {}) => companies.connect(realm, companyOptions),
    async run(process, id, data = null, runOptions = {}) {
      requireKnownMembers('the last argument of run', runOptions, RUN_MEMBERS)
      const { realm, tags, priority, notBefore, debounce } = runOptions
      const name = typeof process === 'string' ? process : process.name
      if (!processes.some((known) => known.name === name))
        throw new Error(
          `the test host has no process ${name}: it has ${processes.map((known) => known.name).join(', ')}`,
        )
      const transaction = {
        TransactionID: id,
        InitialData: data,
        Realm: realm,
        Tags: tags,
        Priority: priority,
        NotBefore: notBefore,
        Debounce: debounce,
      }
      return testRunOf(await request(pathOf(name), transaction))
    },
    async change(
      entity,
      { realm, id, operation, at = new Date(clock.now()).toISOString(), deletedId },
    ) {
      const named = processes.flatMap(({ on }) => on.map((trigger) => trigger.entity))
      const event = providerEventOf({ realm, entity, id, operation, at, deletedId }, named)
      const routingKey = providerRoutingKey(event)
      const started = processes.filter(({ on }) => routingKeysOf(on).includes(routingKey))
      const isWatched = processes.some((one) => watchedKeysOf(one).includes(routingKey))
      if (started.length === 0 && !isWatched)
        throw new Error(`no process names ${entity}.${operation} in on`)
      if (!(await work.track(companies.connected.isConnected(realm))))
        throw new Error(
          `the company ${realm} is not connected: call host.company('${realm}') first`,
        )
      await work.track(
        bus.publish({
          exchange: PROVIDER_EXCHANGE,
          routingKey,
          messageId: event.Id,
          type: routingKey,
          body: event,
          mandatory: true,
        }),
      )
      await runUntil(clock.now())
      const found: TestRun[] = []
      for (const { name } of started) found.push(await testRunOf(await runOf(name, event)))
      return found
    },
    async runs(process) {
      const name = typeof process === 'string' ? process : process.name
      const page = (await request(`${pathOf(name)}?limit=500`)) as unknown as {
        readonly items: readonly RunView[]
      }
      const found: TestRun[] = []
      for (const item of page.items.toReversed()) found.push(await testRunOf(item))
      return found
    },
    async takeBack(process, takeBackOptions = {}) {
      requireKnownMembers('the last argument of takeBack', takeBackOptions, ['dryRun'])
      const Process = typeof process === 'string' ? process : process.name
      const { ID } = (await request('/operations', {
        Action: 'take-back',
        Process,
        Filter: {},
        Reason: 'takeBack of the test host',
        DryRun: takeBackOptions.dryRun === true,
      })) as unknown as OperationView
      const path = `/operations/${ID}`
      for (let seconds = 0; seconds < MAX_TAKE_BACK_SECONDS; seconds += 1) {
        await runUntil(clock.now() + 1_000)
        const { Status } = (await request(path)) as unknown as OperationView
        const items = await takenObjects(`${path}/objects?limit=200`)
        if (Status !== 'Running' && !items.some(({ Outcome }) => Outcome === 'pending'))
          return items.toSorted((a, b) => nameOfObject(a).localeCompare(nameOfObject(b)))
      }
      throw new Error('taking back does not end')
    },
    async advance(duration) {
      await runUntil(clock.now() + milliseconds(duration))
    },
    kill(point, step) {
      if (!killPoints.includes(point))
        throw new TypeError(`${point} is not a point to kill at: use ${killPoints.join(', ')}`)
      const steps = [...processes.flatMap(({ stepNames }) => stepNames), 'remove']
      if (step !== undefined) requireOneOf('the step of kill', step, steps)
      armed = { point, step }
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

/** The seconds on the clock of the host after which a take-back counts as one that does not end. */
const MAX_TAKE_BACK_SECONDS = 3_600
const nameOfObject = ({ Entity, EntityID }: TakenObject): string => `${Entity} ${EntityID}`

/**
 * Opens a journal that writes nothing. No test continues after its OS process has ended, so nothing needs to be stored.
 */
const openNoFile = async () => ({
  appendFile: async () => {},
  datasync: async () => {},
  sync: async () => {},
  truncate: async () => {},
  close: async () => {},
})
