/**
 * A fake installation: one HTTP server that responds to the requests of the console as the coordinator, token-service
 * and the gateway do. Runs change only when a test or a benchmark changes them.
 */
import {
  providerCode,
  providerErrorOf,
} from '@integration-host/shared/provider-profile/provider-fault'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import type {
  ActionView,
  DeadLetterView,
  OperationDetail,
} from '@integration-host/shared/contracts/operations'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import type { RunDetailResponse, RunResponse } from '@integration-host/shared/contracts/run'
import type { RealmCalls } from '@integration-host/shared/contracts/realm-activity'
import type { ScheduleView } from '@integration-host/shared/contracts/schedule'
import type { TransactionEvent } from '@integration-host/shared/contracts/events'
import type { AttemptView, HeaderStatus } from '@integration-host/shared/contracts/transaction'
import type { HealthReport } from '@integration-host/shared/observability/health'
import { startHttpServer } from '../support/fakes/http-server.ts'

export const PROCESS = 'OrderProcess'
const STEPS = ['order', 'report', 'csv']
/** The number of events that the fake keeps for clients that reconnect, as the coordinator does. */
const KEPT_EVENTS = 20_000
const BEGAN = Date.UTC(2026, 0, 1)

/**
 * The data that the fake stores for a run. Every other member of a response is computed from this data, or has a fixed
 * value.
 */
export interface FakeRun {
  readonly process: string
  readonly id: string
  status: HeaderStatus
  version: number
  updatedAt: number
  readonly further: Partial<RunDetailResponse>
}

export interface FakeInstallation extends AsyncDisposable {
  readonly url: string
  /** The runs in the order in which they were queued. */
  readonly runs: FakeRun[]
  readonly actions: ActionView[]
  readonly audit: AuditEntry[]
  readonly credentials: CredentialView[]
  readonly letters: DeadLetterView[]
  readonly calls: RealmCalls['Calls'][number][]
  readonly operations: OperationDetail[]
  readonly schedules: ScheduleView[]
  /** The dependencies that `/health/ready` reports. */
  dependencies: HealthReport['dependencies']
  /** Overrides members of the only process, which by default is not paused and has three steps. */
  process: Readonly<Record<string, unknown>>
  /** What `/metrics/summary` says of the coordinator. */
  counts: NonNullable<MetricsSummary['Coordinator']>
  /** Returns the problem with which a request is rejected; `null` if the request gets the usual response. */
  reject: (
    method: string,
    path: string,
  ) => { readonly code: string; readonly detail: string } | null
  /** The number of requests for each path, without the query. */
  readonly received: ReadonlyMap<string, number>
  /** The received actions, oldest first: path, acting person and request body. */
  readonly acted: readonly {
    readonly path: string
    readonly person: string
    readonly body: unknown
  }[]
  /** Adds runs without events, as if they had been queued long ago. */
  add(ids: readonly string[], further?: Partial<RunDetailResponse>): void
  /** Changes runs, and sends an event for each of them. */
  change(changes: readonly (readonly [run: FakeRun, status: HeaderStatus])[]): void
  /**
   * Ends the open event streams. With `forget`, the past events are deleted as well, as by a restart of the
   * coordinator.
   */
  cutStreams(forget?: boolean): void
  /** The number of open event streams. */
  readonly streams: number
}

const header = (run: FakeRun): RunResponse => ({
  Process: run.process,
  TransactionID: run.id,
  ReplayID: 0,
  StepName: 'order',
  InitialData: 1,
  Realm: null,
  Version: run.version,
  Attempt: 1,
  NextAttemptAt: null,
  LastError: null,
  CreatedAt: createdAt(run),
  UpdatedAt: new Date(run.updatedAt).toISOString(),
  CompletedAt: isOver(run.status) ? new Date(run.updatedAt).toISOString() : null,
  ErrorClass: run.status === 'Failed' ? 'http_503' : null,
  WaitingFor: null,
  InDoubt: false,
  DefinitionVersion: null,
  DeadlineAt: null,
  NotBefore: null,
  DebounceKey: null,
  Absorbed: 0,
  Tags: null,
  Priority: 'normal',
  ConcurrencyKey: null,
  InputChanged: false,
  ErasedAt: null,
  PurgedAt: null,
  ...run.further,
  Status: run.status,
})
const isOver = (status: HeaderStatus): boolean =>
  status === 'Completed' || status === 'Failed' || status === 'Cancelled'
const order = new WeakMap<FakeRun, number>()
const createdAt = (run: FakeRun): string =>
  new Date(BEGAN + (order.get(run) ?? 0) * 1_000).toISOString()

const AFTER: Readonly<Record<string, HeaderStatus>> = {
  resume: 'Queued',
  retry: 'Queued',
  undo: 'Undoing',
  cancel: 'Cancelled',
  replays: 'Queued',
  signal: 'Running',
}

export async function startFakeInstallation(): Promise<FakeInstallation> {
  const runs: FakeRun[] = []
  const byId = new Map<string, FakeRun>()
  const received = new Map<string, number>()
  const acted: FakeInstallation['acted'][number][] = []
  const streams = new Set<ServerResponse>()
  let events: { readonly number: number; readonly text: string }[] = []
  let eventNumber = 0

  const keyOf = (process: string, id: string): string => JSON.stringify([process, id])
  function detail(run: FakeRun, query: URLSearchParams): RunDetailResponse {
    const { Attempts = [], Items = [], ...further } = run.further
    const attempts = Number(query.get('attempts') ?? Attempts.length)
    const isWithBodies = query.get('bodies') !== 'omit'
    return {
      LeaseOwner: null,
      LeaseUntil: null,
      StartedAt: null,
      ...header(run),
      ...further,
      Status: run.status,
      Items: Items.map((item) => (isWithBodies ? item : { ...item, ResponseBody: null })),
      Attempts: attempts === 0 ? [] : Attempts.slice(-attempts),
      AttemptCount: Attempts.length,
    }
  }
  function list(process: string | null, query: URLSearchParams): unknown {
    const limit = Number(query.get('limit') ?? 50)
    const statuses = query.getAll('status')
    const prefix = query.get('idPrefix') ?? ''
    const isIn = (name: string, value: string | null): boolean =>
      !query.has(name) || query.getAll(name).includes(value ?? '')
    const ordered =
      query.get('order') === 'updated'
        ? runs.toSorted((one, other) => one.updatedAt - other.updatedAt)
        : runs
    const items: RunResponse[] = []
    let index = query.has('cursor') ? Number(query.get('cursor')) : runs.length
    while (index > 0 && items.length < limit) {
      index -= 1
      const run = ordered[index]
      if (run === undefined) break
      const isWanted =
        (process === null || run.process === process) &&
        (statuses.length === 0 || statuses.includes(run.status)) &&
        run.id.startsWith(prefix) &&
        (isIn('class', header(run).ErrorClass) ||
          isIn('class', providerCode(providerErrorOf(header(run))))) &&
        isIn('realm', header(run).Realm) &&
        isIn('waitingFor', header(run).WaitingFor)
      if (isWanted) items.push(header(run))
    }
    return { items, next_cursor: index === 0 ? null : String(index) }
  }
  function summary(process: string): unknown {
    const groups = Map.groupBy(
      runs.filter((run) => run.process === process && run.status !== 'Completed'),
      (run) => {
        const { Status, WaitingFor, ErrorClass } = header(run)
        return JSON.stringify([Status, WaitingFor, ErrorClass, providerErrorOf(header(run))])
      },
    )
    const views = [...groups].map(([key, of]) => {
      const [Status, WaitingFor, ErrorClass, ProviderError] = JSON.parse(key) as [
        HeaderStatus,
        string | null,
        string | null,
        string | null,
      ]
      const first = of[0]
      return {
        Status,
        StepName: 'order',
        ErrorClass,
        ProviderError,
        WaitingFor,
        Count: of.length,
        InDoubt: 0,
        FirstEndedAt:
          first === undefined || !isOver(Status) ? null : new Date(first.updatedAt).toISOString(),
      }
    })
    const isBad = (status: HeaderStatus): boolean => status === 'Failed' || status === 'Cancelled'
    return {
      At: new Date().toISOString(),
      Unfinished: views.filter(({ Status }) => !isBad(Status)),
      EndedBadly: views.filter(({ Status }) => isBad(Status)),
    }
  }
  const processView = (): Record<string, unknown> => ({
    Process: PROCESS,
    Steps: STEPS,
    RequireInternet: false,
    Paused: false,
    PausedAt: null,
    PausedBy: null,
    Reason: null,
    Version: null,
    BuiltIn: false,
    On: [],
    Retry: { MaxAttempts: 10, BaseMs: 1_000, CapMs: 300_000 },
    Concurrency: null,
    ConcurrencyByKey: false,
    StepTimeoutSeconds: 60,
    DeadlineSeconds: null,
    Input: null,
    Versions: null,
    ...at.process,
  })

  function act(run: FakeRun, action: string, person: string, body: unknown): RunResponse {
    const { Reason = null } = (body ?? {}) as { readonly Reason?: string | null }
    at.actions.unshift({
      ID: at.actions.length + 1,
      At: new Date().toISOString(),
      KeyID: 'console',
      Person: person,
      Action: action === 'replays' ? 'replay' : action,
      Process: run.process,
      TransactionID: run.id,
      ReplayID: 0,
      Realm: null,
      Reason,
      Outcome: 'done',
      OperationID: null,
    })
    at.change([[run, AFTER[action] ?? run.status]])
    return header(run)
  }

  function signal(run: FakeRun, name: string, { person, body }: FakeRequest): unknown {
    const changed = act(run, 'signal', person, body)
    const Sender = { KeyID: 'console', Person: person, Reason: null, EventID: null }
    const FinishedAt = new Date().toISOString()
    return { ...changed, Item: { StepName: name, Status: 'Completed', FinishedAt, Sender } }
  }

  /** Returns the response of a path; `undefined` if there is no such path. */
  function bodyOf(request: FakeRequest): unknown {
    const { parts, query, method } = request
    const [root = '', name = '', resource, id = '', part] = parts
    switch (root) {
      case 'processes': {
        if (name === '') return { items: [processView()], not_loaded: [] }
        if (resource === undefined) return processView()
        if (resource === 'summary') return summary(name)
        if (resource === 'dead-letters') return { items: at.letters, next_cursor: null }
        if (resource === 'pause' || resource === 'resume') {
          acted.push({ path: request.path, person: request.person, body: request.body })
          const isPaused = resource === 'pause'
          at.process = {
            ...at.process,
            Paused: isPaused,
            PausedAt: isPaused ? new Date().toISOString() : null,
            PausedBy: isPaused ? request.person : null,
            Reason: isPaused ? reasonOf(request) : null,
          }
          return processView()
        }
        if (resource !== 'transactions') return undefined
        if (id === '') return list(name, query)
        const run = byId.get(keyOf(name, id))
        if (run === undefined) return undefined
        // Each transaction of the fake has only one run, with the number 0.
        if (Number(query.get('replay') ?? 0) > 0) return undefined
        if (part === undefined) return detail(run, query)
        if (part === 'runs') return { items: [header(run)] }
        if (method !== 'POST') return undefined
        acted.push({ path: request.path, person: request.person, body: request.body })
        if (part === 'events') return signal(run, parts[5] ?? '', request)
        return act(run, part, request.person, request.body)
      }
      case 'transactions':
        return list(null, query)
      case 'actions': {
        const wanted = query.get('id')
        const items = at.actions.filter(
          ({ TransactionID }) => wanted === null || TransactionID === wanted,
        )
        return { items: items.slice(0, Number(query.get('limit') ?? 50)), next_before: null }
      }
      case 'schedules':
        return { items: at.schedules }
      case 'operations':
        return name === ''
          ? { items: at.operations, next_cursor: null }
          : at.operations.find(({ ID }) => ID === name)
      case 'credentials':
        if (name === 'summary') return counts(at.credentials)
        return name === ''
          ? { items: at.credentials, next_cursor: null }
          : at.credentials.find(({ Name }) => Name === name)
      case 'audit':
        return { items: at.audit, head: { Seq: at.audit.length, Hash: '0'.repeat(64) } }
      case 'realms': {
        // This path belongs to the coordinator, the others to the gateway.
        if (name === 'paused') return { items: [] }
        const activities = at.credentials.map(({ Environment }) => realmOf(Environment))
        return name === ''
          ? {
              Limits: { PerSecond: 10, PerMinute: 500, Concurrent: 10 },
              Month: '2026-11',
              items: activities,
            }
          : { ...realmOf(name), Calls: at.calls }
      }
      default:
        return undefined
    }
  }

  async function handle(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(incoming.url ?? '', 'http://fake.invalid')
    const method = incoming.method ?? ''
    received.set(url.pathname, (received.get(url.pathname) ?? 0) + 1)
    if (url.pathname === '/health/ready')
      return sendJson(response, { status: 'ready', dependencies: at.dependencies })
    if (url.pathname === '/metrics/summary')
      return sendJson(response, {
        Version: '0.0.0',
        StartedAt: new Date(BEGAN).toISOString(),
        LagMs: 11,
        MemoryBytes: 1_000_000,
        Coordinator: at.counts,
      } satisfies MetricsSummary)
    if (url.pathname === '/events') return openStream(incoming, response)
    const content = await text(incoming)
    const request: FakeRequest = {
      method,
      path: url.pathname,
      parts: url.pathname.slice(1).split('/').map(decodeURIComponent),
      query: url.searchParams,
      person: String(incoming.headers['acting-for'] ?? ''),
      body: content === '' ? null : JSON.parse(content),
    }
    const problem = at.reject(method, url.pathname)
    if (problem !== null) return sendJson(response, problem, 409)
    const body = bodyOf(request)
    if (body === undefined)
      sendJson(response, { code: missingCode(request), detail: 'nothing here' }, 404)
    else sendJson(response, body)
  }

  function openStream({ headers }: IncomingMessage, response: ServerResponse): void {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    response.write(': connected\n\n')
    const last = headers['last-event-id']
    if (last !== undefined) {
      const known = events.findIndex(({ number }) => String(number) === last)
      response.write(
        known === -1
          ? 'event: reset\ndata: {}\n\n'
          : events
              .slice(known + 1)
              .map((event) => event.text)
              .join(''),
      )
    }
    streams.add(response)
    response.on('close', () => streams.delete(response))
  }

  const server = await startHttpServer(handle)
  const at: FakeInstallation = {
    url: server.url,
    runs,
    actions: [],
    audit: [],
    credentials: [],
    letters: [],
    calls: [],
    operations: [],
    schedules: [],
    dependencies: {},
    process: {},
    counts: { Runs: {}, Steps: {}, Due: [], DeadLetters: {}, Violations: {}, Online: true },
    reject: () => null,
    received,
    acted,
    get streams() {
      return streams.size
    },
    add(ids, further = {}) {
      for (const id of ids) {
        const run: FakeRun = {
          process: PROCESS,
          id,
          status: further.Status ?? 'Completed',
          version: 6,
          updatedAt: BEGAN + runs.length * 1_000,
          further,
        }
        order.set(run, runs.length)
        runs.push(run)
        byId.set(keyOf(PROCESS, id), run)
      }
    },
    change(changes) {
      const now = Date.now()
      let batch = ''
      for (const [run, status] of changes) {
        run.status = status
        run.version += 1
        run.updatedAt = now
        eventNumber += 1
        const data = JSON.stringify(eventOf(run))
        const message = `event: transaction\nid: ${eventNumber}\ndata: ${data}\n\n`
        events.push({ number: eventNumber, text: message })
        batch += message
      }
      if (events.length > 2 * KEPT_EVENTS) events = events.slice(-KEPT_EVENTS)
      for (const stream of streams) stream.write(batch)
    },
    cutStreams(forget = false) {
      if (forget) {
        events = []
        eventNumber += 1_000_000
      }
      for (const stream of streams) stream.destroy()
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
  return at
}

/**
 * Returns the error code of a 404 response, which depends on whether the process, the transaction or something else is
 * missing.
 */
const missingCode = ({ parts: [root, name] }: FakeRequest): string =>
  root !== 'processes'
    ? 'not_found'
    : name === PROCESS
      ? 'transaction_not_found'
      : 'process_not_found'

const reasonOf = ({ body }: FakeRequest): string | null =>
  (body as { readonly Reason?: string } | null)?.Reason ?? null

interface FakeRequest {
  readonly method: string
  readonly path: string
  /** The segments of the path after URL decoding. */
  readonly parts: readonly string[]
  readonly query: URLSearchParams
  readonly person: string
  readonly body: unknown
}

function sendJson(response: ServerResponse, body: unknown, status = 200): void {
  const type = status < 400 ? 'application/json' : 'application/problem+json'
  response.writeHead(status, { 'Content-Type': type })
  response.end(JSON.stringify(status < 400 ? body : problem(body as { code: string }, status)))
}

const problem = (body: { readonly code: string }, status: number) => ({
  type: `urn:integration-host:error:${body.code}`,
  status,
  title: 'rejected',
  ...body,
})

function eventOf(run: FakeRun): TransactionEvent {
  const { Process, TransactionID, ReplayID, Status, StepName, Attempt, ErrorClass } = header(run)
  return {
    Process,
    TransactionID,
    ReplayID,
    Status,
    StepName,
    Attempt,
    ErrorClass,
    ProviderError: providerErrorOf(header(run)),
    WaitingFor: null,
    InDoubt: false,
    NextAttemptAt: null,
    Version: run.version,
    At: new Date(run.updatedAt).toISOString(),
  }
}

const realmOf = (realm: string): Omit<RealmCalls, 'Calls'> => ({
  Realm: realm,
  HeldUntil: null,
  Waiting: 0,
  LastSecond: 0,
  LastMinute: 1,
  Failed: 1,
  Metered: 1,
})

function counts(credentials: readonly CredentialView[]): unknown {
  const States = { active: 0, expiring: 0, failing: 0, must_reconnect: 0 }
  for (const { State } of credentials) States[State] += 1
  return { Total: credentials.length, States, Classes: {} }
}

/** Returns an attempt that failed with status 503. `further` overrides single members. */
export const failedAttempt = (further: Partial<AttemptView> = {}): AttemptView => ({
  StepName: 'order',
  Attempt: 1,
  Outcome: 'http_503',
  ResponseStatus: 503,
  Error: null,
  Request: null,
  TraceId: null,
  ResponseId: null,
  StartedAt: new Date(BEGAN).toISOString(),
  FinishedAt: new Date(BEGAN + 10).toISOString(),
  ...further,
})
