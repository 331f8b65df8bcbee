/** Tests that the change feed starts the runs of changes whose webhooks were lost. */
import { fileURLToPath } from 'node:url'
import type { ChangesView } from '@integration-host/shared/contracts/company'
import { onQueue } from '@integration-host/shared/contracts/provider-event'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { connect } from 'amqplib'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { connectCompany } from '../support/clients/user-actions.ts'
import { backend, startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const PROCESSES = fileURLToPath(new URL('../support/faults/changes', import.meta.url))
const INVOICES = 60

let system: System
beforeAll(async () => {
  system = await startSystem([])
  system.start('webhook-receiver')
  system.start('sandbox-provider', {
    WEBHOOK_URL: `${system.url('webhook-receiver')}/webhooks/intuit`,
    WEBHOOK_VERIFIER_TOKENS: system.verifierToken,
  })
  system.start('token-service')
  system.start('accounting-gateway')
  startCoordinator()
  await system.ready(
    'webhook-receiver',
    'sandbox-provider',
    'token-service',
    'accounting-gateway',
    'coordinator',
  )
  await eventually(async () => expect(await consumers()).toBe(1))
  await connectCompany(system, REALM)
}, 120_000)
afterAll(() => system[Symbol.asyncDispose]())

const startCoordinator = () =>
  system.start('coordinator', {
    PROCESSES,
    TOKEN_SERVICE_URL: system.url('token-service'),
    LOCAL_PULL_SECONDS: '0.5',
    REMOTE_PULL_SECONDS: '1',
  })

async function consumers(): Promise<number> {
  const connection = await connect(backend('TEST_AMQP_URL'))
  try {
    const channel = await connection.createChannel()
    channel.on('error', () => {})
    return (await channel.checkQueue(system.amqpPrefix + onQueue('OrderProcess'))).consumerCount
  } catch {
    return 0 // the queue does not exist yet
  } finally {
    await connection.close()
  }
}

interface Invoice {
  readonly Id: string
  readonly SyncToken: string
  readonly MetaData: { readonly LastUpdatedTime: string }
}
async function sendInvoice(query: string, body: object): Promise<Invoice> {
  const url = `${system.url('accounting-gateway')}/v3/company/${REALM}/invoice${query}`
  const response = await system.call(url, { method: 'POST', body: JSON.stringify(body) })
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  return ((await response.json()) as { Invoice: Invoice }).Invoice
}
const idOf = ({ Id, MetaData }: Invoice, isDeleted = false): string =>
  `Invoice-${Id}${isDeleted ? ':deleted' : ''}@${MetaData.LastUpdatedTime.slice(0, 19)}Z/${REALM}`

async function sandbox(method: string, path: string, body?: object): Promise<unknown> {
  const response = await fetch(`${system.url('sandbox-provider')}/sandbox/${path}`, {
    method,
    headers: { 'Content-Type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  if (!response.ok) throw new Error(`${path}: ${response.status}`)
  return response.json()
}
const changesOfCompany = async (): Promise<ChangesView> => {
  const response = await system.call(`${system.url('coordinator')}/realms/${REALM}/changes`)
  expect(response.status).toBe(200)
  return (await response.json()) as ChangesView
}
const sweepNow = async (): Promise<void> => {
  const url = `${system.url('coordinator')}/schedules/ChangeFeed/sweep/run`
  const response = await system.call(url, { method: 'POST', body: '{}' })
  expect(response.status).toBe(200)
}
async function startedRuns(): Promise<readonly string[]> {
  await using database = await openDatabase(system)
  const rows = await database.sql<{ id: string }[]>`
    select "TransactionID" as id from "Order_Header" where "Process" = 'OrderProcess'`
  return rows.map(({ id }) => id)
}
/**
 * Creates invoices, and updates or deletes some of them. Returns the event ids of all changes, and for each remaining
 * invoice the event id of its last change.
 */
async function changeBooks() {
  const all = new Set<string>()
  const last: string[] = []
  for (let n = 0; n < INVOICES; n += 1) {
    let invoice = await sendInvoice('', { TotalAmt: n })
    all.add(idOf(invoice))
    const { Id, SyncToken } = invoice
    if (n % 3 === 1) invoice = await sendInvoice('', { Id, SyncToken, sparse: true, TotalAmt: 1 })
    if (n % 3 === 2) await sendInvoice('?operation=delete', { Id, SyncToken })
    all.add(idOf(invoice))
    if (n % 3 !== 2) last.push(idOf(invoice))
  }
  return { all, last }
}

it('the change feed starts one run for each change whose webhook was lost', async () => {
  // The coordinator creates the cursor of the company when the credential is stored.
  await eventually(async () => expect((await changesOfCompany()).SweptAt).toBeNull())
  await sandbox('PUT', 'webhooks', { dropPercent: 30, copies: 3, shuffled: true })
  const { all, last } = await changeBooks()
  const { counts } = (await sandbox('GET', 'webhooks')) as { counts: { dropped: number } }
  expect(counts.dropped).toBeGreaterThan(0)
  await until(async () => {
    const now = (await sandbox('GET', 'webhooks')) as { counts: { waiting: number } }
    return now.counts.waiting === 0
  })
  const deletions = INVOICES / 3
  const isMissing = (started: readonly string[], id: string): boolean => !started.includes(id)
  const before = await startedRuns()
  expect(last.some((id) => isMissing(before, id))).toBe(true)

  await sweepNow()
  await eventually(async () => {
    const started = await startedRuns()
    expect(last.filter((id) => isMissing(started, id))).toEqual([])
    expect(started.filter((id) => id.includes(':deleted@'))).toHaveLength(deletions)
  })
  await eventually(async () => expect((await changesOfCompany()).SweptAt).not.toBeNull())
  const swept = await changesOfCompany()
  expect(swept).toMatchObject({ Realm: REALM, Incomplete: null })
  expect(swept.Events).toBeGreaterThanOrEqual(INVOICES)
  expect(swept.LagSeconds).toBeLessThan(60)

  // The second sweep reads the changes from a time before the end of the first sweep. The second sweep therefore finds
  // the same changes, and starts no run.
  const started = await startedRuns()
  for (const id of started) expect(id.includes(':deleted@') || all.has(id), id).toBe(true)
  await sweepNow()
  await eventually(async () => expect((await changesOfCompany()).SweptAt).not.toBe(swept.SweptAt))
  await eventually(async () => expect((await changesOfCompany()).Events).toBeGreaterThan(0))
  expect((await startedRuns()).toSorted()).toEqual(started.toSorted())
})

it('the change feed starts the missed runs as soon as webhooks are delivered again after an outage of the receiver', async () => {
  await sandbox('PUT', 'webhooks', { dropPercent: 100, copies: 1, shuffled: false })
  const lost = await sendInvoice('', { TotalAmt: 100 })
  await sandbox('PUT', 'webhooks', { dropPercent: 0 })
  await using database = await openDatabase(system)
  await database.sql`
    update "Order_Installation" set "Value" = to_jsonb(now() - interval '2 hours') where "Name" = 'delivery'`
  await system.service('coordinator').stop('SIGKILL')
  startCoordinator()
  await system.ready('coordinator')
  const delivered = await sendInvoice('', { TotalAmt: 101 })
  await eventually(async () => expect(await startedRuns()).toContain(idOf(delivered)))
  await eventually(async () => expect(await startedRuns()).toContain(idOf(lost)))
})
