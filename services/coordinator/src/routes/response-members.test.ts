/**
 * Tests that a key without `transactions:read` sees no stored data of other requests. The routes come from the OpenAPI
 * document, so a new route is tested as soon as it exists.
 */
import type { Scope } from '@integration-host/shared/access/scope'
import { DEAD_EXCHANGE } from '@integration-host/shared/contracts/topology'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bearer, type Fixture, startEmbedded } from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'
import type { Step } from '../step/step.ts'

/** Stands in all data that the tests store with another key: input, names, errors, reasons and results. */
const PLANTED = 'PLANTEDDATA'
/** The key that stores the data. Its id is a name that others must not see either. */
const PLANTER = `${PLANTED}.planter`

/** Completes or fails with planted data, as the initial data says. */
const sale = defineProcess('Sale', {
  schedules: [{ name: 'nightly', cron: '0 2 * * *', input: PLANTED }],
})
  .step('first', (step: Step) => step.complete({ customer: PLANTED }))
  .step('second', (step) => {
    const { ends } = (step.initialData ?? {}) as { readonly ends?: string }
    return ends === 'well' ? step.complete(PLANTED) : step.fail(`no customer ${PLANTED}`)
  })
const held = defineProcess('Held').step('only', (step) => step.complete(null))

interface Route {
  readonly method: string
  readonly path: string
  readonly operationId: string
  readonly scope: Scope | undefined
}

interface Request {
  /** The values of the parameters in the path. */
  readonly params?: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

interface Tested {
  /** The members that a response may have besides what the request itself has brought. */
  readonly members: readonly string[]
  readonly requests: readonly Request[]
}

const namesIn = (text: string): readonly string[] => text.trim().split(/\s+/)
const RUN = namesIn(`
  Process TransactionID ReplayID Status Version NextAttemptAt NotBefore DeadlineAt CreatedAt UpdatedAt CompletedAt
  ErasedAt PurgedAt`)
/** What the definition of a process says, and whether the process is paused. By whom and why is null. */
const PROCESS = namesIn(`
  Process Steps RequireInternet Paused PausedAt PausedBy Reason Retry Retry.MaxAttempts Retry.BaseMs Retry.CapMs
  Dispatch Concurrency ConcurrencyByKey ConcurrencyPerKey Targets StepTimeoutSeconds Version DeadlineSeconds On Events Decisions Watches BuiltIn
  Consuming`)
const COMPANY_PAUSE = namesIn('Realm Paused PausedAt PausedBy Reason')
const SCHEDULE = namesIn(`
  Process Name Cron TimeZone Each CatchUp JitterSeconds NextTimes LastTime OpenTime LagSeconds Paused PausedAt PausedBy
  Reason RemovedAt`)
const CHANGED_OPERATION = namesIn('ID Process Status StatusReason CreatedAt UpdatedAt FinishedAt')
/** What is new in an operation that the request itself has started. */
const STARTED_OPERATION = namesIn(`
  ${CHANGED_OPERATION.join(' ')} Action Filter IdCount FromStep PerSecond DryRun KeyID Person Reason Done Skipped
  Failed FailedByCode`)
const BULK = namesIn(`
  queued absorbed exists conflicts invalid results results.line results.TransactionID results.outcome results.code
  results.errors`)
const PROBLEM = namesIn('type title status code detail scope errors')

const debounced = { Debounce: { Key: `invoice of ${PLANTED}`, Seconds: 3_600 } }
const wait = { Prefer: 'wait=1' }

/** The requests of each route that changes something. A new route needs an entry here. */
const tested = (
  operation: string,
  deadLetters: readonly string[],
): Readonly<Record<string, Tested>> => {
  const ofRun = (...ids: readonly string[]): Tested => ({
    members: RUN,
    requests: ids.map((id) => ({ params: { process: 'Sale', id } })),
  })
  const queued = ['failed', 'completed', 'delayed', 'debounced', 'new'].map((TransactionID) => ({
    TransactionID,
    InitialData: 'mine',
    ...(TransactionID.startsWith('debounced') && { Debounce: { Key: 'guessed', Seconds: 9 } }),
  }))
  const mine = { TransactionID: 'absorbed here', InitialData: 'mine', ...debounced }
  const params = { process: 'Sale' }
  const ofOperation = (...ids: readonly string[]): Tested => ({
    members: CHANGED_OPERATION,
    requests: ids.map((id) => ({ params: { id } })),
  })
  const paused = { params: { process: 'Held' }, body: { Reason: 'mine' } }
  const schedule = { process: 'Sale', name: 'nightly' }
  const keyOpen = { members: ['Operations'], requests: [{ params: { id: PLANTER } }] }
  return {
    queueTransaction: {
      members: RUN,
      requests: [...queued, mine].flatMap((body) => [
        { params, body },
        { params, body, headers: wait },
      ]),
    },
    queueTransactions: { members: BULK, requests: [{ params, body: [...queued, mine, {}] }] },
    replayTransaction: {
      members: RUN,
      requests: [
        { params: { ...params, id: 'failed' } },
        { params: { ...params, id: 'completed' }, body: { InitialData: 'mine' } },
        { params: { ...params, id: 'delayed' } },
      ],
    },
    resumeTransaction: ofRun('failed to resume', 'completed', 'unknown'),
    retryTransaction: ofRun('delayed to retry', 'completed'),
    undoTransaction: ofRun('failed to undo', 'delayed'),
    cancelTransaction: ofRun('delayed', 'completed'),
    settleTransaction: {
      members: RUN,
      requests: [
        { params: { ...params, id: 'completed' }, body: { Outcome: 'done', Reason: 'mine' } },
      ],
    },
    pauseProcess: { members: PROCESS, requests: [paused] },
    resumeProcess: { members: PROCESS, requests: [paused] },
    pauseCompany: { members: COMPANY_PAUSE, requests: [{ params: { realm: '42' } }] },
    resumeCompany: { members: COMPANY_PAUSE, requests: [{ params: { realm: '42' } }] },
    pauseSchedule: { members: SCHEDULE, requests: [{ params: schedule }] },
    resumeSchedule: { members: SCHEDULE, requests: [{ params: schedule }] },
    runSchedule: { members: ['TransactionID', 'Time'], requests: [{ params: schedule }] },
    createOperation: {
      members: STARTED_OPERATION,
      requests: [
        { body: { Action: 'cancel', Process: 'Sale', Ids: ['unknown'], Reason: 'mine' } },
        { body: { Action: 'cancel', Process: 'Sale', Filter: {}, DryRun: true, Reason: 'mine' } },
      ],
    },
    continueOperation: ofOperation(operation, 'unknown'),
    stopOperation: ofOperation(operation, 'unknown'),
    createErasure: {
      members: ['erased', 'files', 'filesLeft', 'more', 'notEnded', 'unknown'],
      requests: [{ body: { Process: 'Sale', Ids: ['failed', 'delayed'] } }],
    },
    countOperationsOfKey: keyOpen,
    stopOperationsOfKey: keyOpen,
    keepOperationsOfKey: keyOpen,
    requeueDeadLetter: {
      members: RUN,
      requests: deadLetters.map((id) => ({ params: { ...params, id } })),
    },
    deleteDeadLetter: {
      members: [],
      requests: deadLetters.map((id) => ({ params: { ...params, id } })),
    },
    deleteDeadLetters: { members: ['Deleted'], requests: [{ params }] },
  }
}

const SCOPES = ['transactions:queue', 'transactions:operate'] as const

describe('a key without transactions:read', () => {
  let host: Fixture
  let routes: readonly Route[]
  let requests: Readonly<Record<string, Tested>>

  const call = (
    key: string,
    { method, path }: Pick<Route, 'method' | 'path'>,
    { params = {}, body, headers = {} }: Request = {},
  ): Promise<Response> =>
    host.call(
      path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? 'Sale')),
      {
        method,
        headers: {
          ...headers,
          ...bearer(key),
          ...(body !== undefined && { 'Content-Type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      },
    )
  const plant = async (path: string, body: unknown): Promise<unknown> => {
    const response = await call(PLANTER, { method: 'POST', path }, { body })
    const text = await response.text()
    if (!response.ok) throw new Error(`${path}: ${text}`)
    return JSON.parse(text)
  }

  /** Stores runs, a debounced run, pauses, an operation and a dead letter, all with planted data. */
  async function plantAll(): Promise<void> {
    const path = '/processes/Sale/transactions'
    const InitialData = { customer: PLANTED }
    const common = { Realm: PLANTED, Tags: { owner: PLANTED }, Reason: PLANTED }
    const queue = (TransactionID: string, more: object = {}) =>
      plant(path, { TransactionID, InitialData, ...common, ...more })
    await queue('failed')
    await queue('failed to resume')
    await queue('failed to undo')
    await queue('completed', { InitialData: { ...InitialData, ends: 'well' } })
    await queue('delayed', { NotBefore: 3_600 })
    await queue('delayed to retry', { NotBefore: 3_600 })
    await queue('debounced', debounced)
    await queue('dead', { NotBefore: 3_600 })
    await host.reached('failed', 'Failed')
    await host.reached('failed to resume', 'Failed')
    await host.reached('failed to undo', 'Failed')
    await host.reached('completed', 'Completed')
    await plant('/processes/Held/pause', { Reason: PLANTED })
    await plant('/schedules/Sale/nightly/pause', { Reason: PLANTED })
    await plant('/realms/42/pause', { Reason: PLANTED })
    const step = { Process: 'Sale', TransactionID: 'dead', ReplayID: 0, Step: 'first', Version: 0 }
    const messages = [
      { v: 1, ...step },
      { TransactionID: 'unknown member', InitialData, [PLANTED]: 1 },
      { TransactionID: 'completed', InitialData },
    ]
    for (const [index, body] of messages.entries())
      await host.bus.publish({
        exchange: DEAD_EXCHANGE,
        routingKey: 'Sale',
        messageId: String(index),
        type: 'step',
        body,
        mandatory: true,
      })
    const deadLetters = await eventually(async () => {
      const response = await host.call('/processes/Sale/dead-letters')
      const { items } = (await response.json()) as { items: { ID: number }[] }
      expect(items).toHaveLength(messages.length)
      return items.map(({ ID }) => String(ID))
    })
    const { ID } = (await plant('/operations', {
      Action: 'retry',
      Process: 'Sale',
      Ids: Array.from({ length: 100 }, (_, n) => `${PLANTED} ${n}`),
      PerSecond: 1,
      Reason: PLANTED,
    })) as { readonly ID: string }
    requests = tested(ID, deadLetters)
  }

  /** Returns the names of all members of a response, without the numbers of list entries and what a map contains. */
  function membersOf(value: unknown, brought: object, at = ''): string[] {
    if (Array.isArray(value)) return value.flatMap((item) => membersOf(item, brought, at))
    if (typeof value !== 'object' || value === null) return []
    return Object.entries(value).flatMap(([name, member]) => {
      if (at === '' && name in brought) return [] // the text of the response has no planted data
      const path = at === '' ? name : `${at}.${name}`
      return [path, ...membersOf(member, brought, path)]
    })
  }

  beforeAll(async () => {
    const all = ['transactions:read', ...SCOPES] as const
    host = await startEmbedded({
      processes: [sale, held],
      keys: [
        { id: PLANTER, scopes: all },
        ...SCOPES.map((scope) => ({ id: nameOf(scope), scopes: [scope] })),
      ],
    })
    const { paths } = (await (await host.call('/openapi.json')).json()) as {
      paths: Record<
        string,
        Record<string, { 'x-scope'?: Scope; operationId: string; security?: unknown }>
      >
    }
    routes = Object.entries(paths).flatMap(([path, item]) =>
      Object.entries(item)
        .filter(([, { security }]) => security !== undefined)
        .map(([method, { operationId, 'x-scope': scope }]) => ({
          method: method.toUpperCase(),
          path,
          operationId,
          scope,
        })),
    )
    await until(async () => (await host.call('/schedules')).ok)
    await plantAll()
  })
  afterAll(() => host[Symbol.asyncDispose]())

  it('is tested at every route that it may call', () => {
    const changing = routes.filter(({ scope }) => SCOPES.some((one) => one === scope))
    expect(changing.map(({ operationId }) => operationId).toSorted()).toEqual(
      Object.keys(requests).toSorted(),
    )
  })

  it.each(SCOPES)('sees neither data of others nor further members with only %s', async (scope) => {
    const withoutSuccess = new Set<string>()
    for (const [operationId, { members, requests: sent }] of Object.entries(requests)) {
      const route = routes.find((one) => one.operationId === operationId)
      if (route?.scope !== scope) continue
      withoutSuccess.add(operationId)
      for (const request of sent) {
        const response = await call(nameOf(scope), route, request)
        const text = await response.text()
        const where = `${operationId} ${JSON.stringify(request)}: ${response.status}`
        expect(response.status === 401 || response.status >= 500, where).toBe(false)
        if (response.ok) withoutSuccess.delete(operationId)
        expect(text, where).not.toContain(PLANTED)
        const brought = response.ok ? (request.body ?? {}) : {}
        const found = membersOf(JSON.parse(text || '{}'), brought)
        const permitted = response.ok ? members : PROBLEM
        expect(
          found.filter((name) => !permitted.includes(name)),
          where,
        ).toEqual([])
      }
    }
    // No run is in doubt and no operation is paused, so these two are rejected.
    expect([...withoutSuccess].filter((id) => !/^(settle|continue)/.test(id))).toEqual([])
  })

  it.each(SCOPES)(
    'gets 403 without data at every other route, streams included, with only %s',
    async (scope) => {
      for (const route of routes.filter((one) => one.scope !== scope)) {
        const response = await call(nameOf(scope), route, { params: { id: 'failed' } })
        const text = await response.text()
        expect([route.operationId, response.status]).toEqual([route.operationId, 403])
        expect(text).not.toContain(PLANTED)
      }
    },
  )
})

const nameOf = (scope: Scope): string => `only.${scope.replace(':', '-')}`
