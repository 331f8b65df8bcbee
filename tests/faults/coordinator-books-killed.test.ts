/**
 * Runs write invoices and payments while coordinators and the gateway are killed, most webhooks are lost, and a person changes,
 * voids and deletes some of the objects. At the end each object has one entry of its creation, each change was found and
 * reported once, and nothing else was reported. Then everything is taken back.
 */
import type { OperationView, TakenObjectPage } from '@integration-host/shared/contracts/operations'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { type DatabaseAssertions, openDatabase } from '../support/faults/database-assertions.ts'
import { scale, seededRandom } from '../support/faults/scale.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { READY_DEADLINE_MS, startSystem, type System } from '../support/system.ts'

const ORDERS = scale({ test: 36, faults: 1_000 })
const COMPANIES = scale({ test: 2, faults: 8 })
const EDITS = Math.max(7, Math.round(ORDERS * (5 / 3) * 0.05))
const PAUSE_MS = scale({ test: 300, faults: 2_000 })
/** For how long services are killed while one work is done. On a loaded machine, a restart takes most of this time. */
const KILLING_MS = scale({ test: 30_000, faults: 300_000 })
/** Pauses that are longer than this are ended by a person (`endPauses`). */
const LONG_PAUSE_MS = 5_000
/**
 * The longest time of one work: services are killed, the last one starts, and the rest is done. That begins when the leases
 * of the last coordinator have ended, and no pause between two attempts is long.
 */
const WORK_SECONDS =
  (KILLING_MS + READY_DEADLINE_MS + scale({ test: 60_000, faults: 140_000 })) / 1_000
/** Longer than all works together, so that the assertion of a work fails before. */
const TIMEOUT_MS = 6 * WORK_SECONDS * 1_000
const realms = Array.from({ length: COMPANIES }, (_, n) => `934145390805988${n}`)
const limits = {
  REQUESTS_PER_SECOND: '10000',
  REQUESTS_PER_MINUTE: '1000000',
  CONCURRENT_REQUESTS: '100',
}

/** An object that a run has created. */
interface Written {
  readonly realm: string
  readonly entity: 'Invoice' | 'Payment'
  readonly id: string
  readonly order: string
}

/** What a person does, what the entry must then say, and what becomes of the object and of its invoice when taken back. */
const KINDS = [
  { of: 'Invoice', isPaid: true, edit: note(), state: 'ChangedOutside' },
  { of: 'Payment', isPaid: true, edit: note(), state: 'ChangedOutside' },
  { of: 'Payment', isPaid: true, edit: { operation: 'delete' }, state: 'Deleted' },
  { of: 'Payment', isPaid: true, edit: { operation: 'void' }, state: 'Voided' },
  { of: 'Invoice', isPaid: false, edit: { operation: 'delete' }, state: 'Deleted' },
  { of: 'Invoice', isPaid: false, edit: { operation: 'void' }, state: 'Voided' },
  // No run has written this field.
  { of: 'Invoice', isPaid: false, edit: { change: { CustomerMemo: { value: 'x' } } }, state: null },
] as const
function note() {
  return { change: { PrivateNote: 'changed by a person' } } as const
}

let system: System
let database: DatabaseAssertions
const random = seededRandom()
const orders = Array.from({ length: ORDERS }, (_, n) => ({
  TransactionID: String(n),
  InitialData: String(n),
  Realm: realms[n % COMPANIES] ?? '',
}))
const isPaid = (order: string): boolean => Number(order) % 3 !== 0

const startCoordinator = () =>
  system.start(
    'coordinator',
    {
      PROCESS: 'books',
      TOKEN_SERVICE_URL: system.url('token-service'),
      LOCAL_PULL_SECONDS: '0.5',
      REMOTE_PULL_SECONDS: '1',
      LEASE_MS: '3000',
    },
    coordinatorWithFailpoints,
  )

beforeAll(async () => {
  system = await startSystem([])
  system.start('sandbox-provider', {
    WEBHOOK_URL: `${system.url('webhook-receiver')}/webhooks/intuit`,
    WEBHOOK_VERIFIER_TOKENS: system.verifierToken,
  })
  for (const name of ['token-service', 'webhook-receiver'] as const) system.start(name)
  system.start('accounting-gateway', limits)
  startCoordinator()
  await system.ready('sandbox-provider', 'token-service', 'accounting-gateway', 'coordinator')
  await sandbox('PUT', 'webhooks', { dropPercent: 30 })
  for (const realm of realms) await connectCompany(system, realm)
  database = await openDatabase(system)
}, 120_000)
afterAll(async () => {
  await database?.[Symbol.asyncDispose]()
  await system?.[Symbol.asyncDispose]()
})

async function sandbox(method: string, path: string, body: object): Promise<void> {
  const response = await fetch(`${system.url('sandbox-provider')}/sandbox/${path}`, {
    method,
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  await response.body?.cancel()
}

/** Sends a request until a coordinator responds with a success: it may just be killed. */
const coordinator = <Result>(path: string, body?: object): Promise<Result> =>
  eventually(
    async () => {
      const response = await system.call(`${system.url('coordinator')}/${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        headers: { 'Content-Type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      expect(response.ok, path).toBe(true)
      return (await response.json()) as Result
    },
    { seconds: WORK_SECONDS, everyMs: 250 },
  )

let kills = 0
/** Kills the coordinator or the gateway, and starts it again. */
async function killOne(): Promise<void> {
  const name = random() < 0.6 ? 'coordinator' : 'accounting-gateway'
  await system.service(name).stop('SIGKILL')
  kills += 1
  if (name === 'coordinator') startCoordinator()
  else system.start(name, limits)
  await system.ready(name)
}

/**
 * A person retries what waits long for its next attempt. A sweep whose gateway was killed waits for up to 30, 60, 120 s and
 * so on, and a run that has lost two coordinators in a row for 30, 60, 120 s: three kills may cost more than three minutes.
 */
async function endPauses(): Promise<void> {
  const runs = await database.sql<{ process: string; id: string }[]>`
    select "Process" as process, "TransactionID" as id from "Order_Header"
    where "Status" = 'Retrying' and "NextAttemptAt" > now() + ${LONG_PAUSE_MS} * interval '1 ms'
    order by "NextAttemptAt" desc limit 100`
  const retry = async ({ process, id }: { process: string; id: string }): Promise<void> => {
    const path = `processes/${process}/transactions/${encodeURIComponent(id)}/retry`
    const response = await system.call(`${system.url('coordinator')}/${path}`, { method: 'POST' })
    await response.body?.cancel()
    // 409: the pause has just ended.
    expect([202, 409], path).toContain(response.status)
  }
  await Promise.all(runs.map(retry))
}

/** Kills services for `KILLING_MS`, or until the work is done. */
async function whileKilled<Result>(work: () => Promise<Result>): Promise<Result> {
  let isDone = false
  const working = work().finally(() => (isDone = true))
  for (const endsAt = Date.now() + KILLING_MS; !isDone;) {
    await Promise.race([working.catch(() => null), delay(PAUSE_MS + 1_000 * random())])
    if (isDone) break
    if (Date.now() < endsAt) await killOne()
    await endPauses()
  }
  return working
}

const completed = (process: string, count: number): Promise<void> =>
  eventually(
    async () => {
      const rows = await database.sql<{ status: string; count: number }[]>`
        select "Status" as status, count(*)::int as count from "Order_Header"
        where "Process" = ${process} group by 1`
      expect(rows).toEqual([{ status: 'Completed', count }])
    },
    { seconds: WORK_SECONDS, everyMs: 500 },
  )

/** Queues orders, and waits until all orders that were queued so far have completed. */
async function sell(from: number, to: number): Promise<void> {
  await coordinator('processes/OrderProcess/transactions/bulk', orders.slice(from, to))
  await completed('OrderProcess', to)
}

const written = async (): Promise<readonly Written[]> =>
  database.sql<Written[]>`
    select "Realm" as realm, "Entity" as entity, "EntityID" as id, "TransactionID" as "order"
    from "Book_Entry" where "Process" = 'OrderProcess' and "Operation" = 'create'`

const keyOf = ({ realm, entity, id }: Pick<Written, 'realm' | 'entity' | 'id'>): string =>
  `${realm} ${entity} ${id}`

/** What the person has done, by the order, of which at most one object is changed. */
const edited = new Map<string, Written & { readonly kind: (typeof KINDS)[number] }>()

/** A person changes objects of completed orders. */
async function edit(count: number): Promise<void> {
  const objects = await written()
  for (let n = 0; n < count; n += 1) {
    const kind = KINDS[edited.size % KINDS.length]
    if (kind === undefined) throw new Error('there is no such kind')
    const free = objects.filter(
      (one) =>
        one.entity === kind.of && isPaid(one.order) === kind.isPaid && !edited.has(one.order),
    )
    const chosen = free[Math.floor(random() * free.length)]
    if (chosen === undefined) throw new Error('too few orders')
    const { realm, entity, id } = chosen
    await sandbox('POST', `companies/${realm}/edits`, { edits: [{ entity, id, ...kind.edit }] })
    edited.set(chosen.order, { ...chosen, kind })
  }
}

/** Starts a sweep of the change feed, and waits until all companies were swept. */
async function sweep(): Promise<void> {
  const sweptAt = () =>
    Promise.all(
      realms.map(async (realm) => {
        const { SweptAt } = await coordinator<{ SweptAt: string | null }>(`realms/${realm}/changes`)
        return SweptAt
      }),
    )
  const before = await sweptAt()
  await coordinator('schedules/ChangeFeed/sweep/run', {})
  await eventually(
    async () => {
      const after = await sweptAt()
      expect(after.filter((at, n) => at === before[n])).toEqual([])
    },
    { seconds: WORK_SECONDS, everyMs: 500 },
  )
}

/** Returns the ids of the objects that are in the books. */
async function books(): Promise<readonly string[]> {
  const found: string[] = []
  for (const realm of realms)
    for (const entity of ['Invoice', 'Payment'] as const) {
      const query = encodeURIComponent(`select * from ${entity} maxresults 1000`)
      const url = `${system.url('accounting-gateway')}/v3/company/${realm}/query?query=${query}`
      const { QueryResponse } = (await (await system.call(url)).json()) as {
        QueryResponse: Record<string, { Id: string }[] | undefined>
      }
      for (const { Id: id } of QueryResponse[entity] ?? []) found.push(keyOf({ realm, entity, id }))
    }
  return found.toSorted()
}

it(
  'each object has one entry, each change by a person is found once, and everything else can be taken back',
  async ({ annotate }) => {
    // An object that no run has written.
    const own = realms.map((realm) => ({ realm, entity: 'Invoice' as const, id: '1' }))
    for (const { realm } of own)
      await sandbox('POST', `companies/${realm}/objects`, { objects: [{ Invoice: { Line: [] } }] })

    const half = Math.ceil(ORDERS / 2)
    await whileKilled(() => sell(0, half))
    await edit(Math.floor(EDITS / 2))
    await whileKilled(async () => {
      await Promise.all([sell(half, ORDERS), sweep()])
    })
    await edit(EDITS - edited.size)

    const objects = await written()
    const keys = objects.map(keyOf).toSorted()
    expect(new Set(keys).size).toBe(keys.length)
    expect(keys).toHaveLength(
      ORDERS + orders.filter(({ InitialData }) => isPaid(InitialData)).length,
    )
    const isDeleted = (key: string): boolean =>
      [...edited.values()].some((one) => keyOf(one) === key && one.kind.state === 'Deleted')
    const ownKeys = own.map(keyOf)
    expect(await books()).toEqual([...keys.filter((key) => !isDeleted(key)), ...ownKeys].toSorted())

    await whileKilled(sweep)
    const found = [...edited.values()].filter(({ kind }) => kind.state !== null)
    const expected = found.map((one) => `${keyOf(one)} ${one.kind.state}`).toSorted()
    // A sweep that had begun before the last edits may end after them.
    const outside = await eventually(
      async () => {
        await sweep()
        const rows = await database.sql<{ key: string; changed: string[] | null }[]>`
          select concat_ws(' ', "Realm", "Entity", "EntityID", "State") as key, "Changed" as changed
          from "Book_Entry" where "State" <> 'Verified'`
        expect(rows.map(({ key }) => key).toSorted()).toEqual(expected)
        return rows
      },
      { seconds: 60 },
    )
    for (const { key, changed } of outside)
      if (key.endsWith('ChangedOutside')) expect(changed, key).toEqual(['PrivateNote'])
    await completed('OrderLine', expected.length)
    const reported = await database.sql<{ key: string }[]>`
      select concat_ws(' ', d->>'realm', d->>'entity', d->>'id', d->>'state') as key
      from (select "InitialData"::jsonb as d from "Order_Header" where "Process" = 'OrderLine') r`
    expect(reported.map(({ key }) => key).toSorted()).toEqual(expected)

    const { ID } = await coordinator<OperationView>('operations', {
      Action: 'take-back',
      Process: 'OrderProcess',
      Filter: {},
      PerSecond: 200,
      Reason: 'as the test wants',
    })
    await whileKilled(() => completed('TakeBack', keys.length))
    const left: string[] = []
    let cursor: string | null = ''
    while (cursor !== null) {
      const at: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
      const page: TakenObjectPage = await coordinator(`operations/${ID}/objects?limit=200${at}`)
      for (const { Realm, Entity, EntityID, Outcome, Reason } of page.items)
        if (Outcome !== 'deleted')
          left.push(`${Realm} ${Entity} ${EntityID} ${Outcome} ${Reason ?? ''}`)
      cursor = page.next_cursor
    }
    const leftAs = { ChangedOutside: 'changed_outside', Voided: 'changed_outside', Deleted: 'gone' }
    const expectedLeft = found.flatMap((one) => {
      const reason = one.kind.state === null ? '' : leftAs[one.kind.state]
      const itself = `${keyOf(one)} left ${reason}`
      // The invoice of a payment that is left is paid.
      const invoice = objects.find(
        ({ order, entity }) => order === one.order && entity === 'Invoice',
      )
      return one.entity === 'Payment' && one.kind.state === 'ChangedOutside' && invoice
        ? [itself, `${keyOf(invoice)} left paid`]
        : [itself]
    })
    expect(left.toSorted()).toEqual(expectedLeft.toSorted())
    const remaining = expectedLeft
      .filter((text) => !text.endsWith(' gone'))
      .map((text) => text.split(' ').slice(0, 3).join(' '))
    expect(await books()).toEqual([...remaining, ...ownKeys].toSorted())
    await annotate(
      `${ORDERS} orders of ${COMPANIES} companies, ${keys.length} objects, ${edited.size} edits, ${kills} SIGKILLs`,
      'measurement',
    )
  },
  TIMEOUT_MS,
)
