/** Tests that what a person changes in the books, which a run has written, is found, reported and shown. */
import { fileURLToPath } from 'node:url'
import type { BooksView, EntryPage } from '@integration-host/shared/contracts/company'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectCompany } from '../support/clients/user-actions.ts'
import { startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const PROCESSES = fileURLToPath(new URL('../support/faults/book-proof', import.meta.url))

let system: System
beforeAll(async () => {
  system = await startSystem(['sandbox-provider', 'token-service', 'accounting-gateway'])
  system.start('coordinator', {
    PROCESSES,
    TOKEN_SERVICE_URL: system.url('token-service'),
    GATEWAY_URL: system.url('accounting-gateway'),
    LOCAL_PULL_SECONDS: '0.5',
    REMOTE_PULL_SECONDS: '1',
  })
  await system.ready('coordinator')
  await connectCompany(system, REALM)
}, 120_000)
afterAll(() => system[Symbol.asyncDispose]())

async function coordinator<Result>(path: string, body?: object): Promise<Result> {
  const headers = { 'Content-Type': 'application/json' }
  const init = body === undefined ? {} : { method: 'POST', headers, body: JSON.stringify(body) }
  const response = await system.call(`${system.url('coordinator')}/${path}`, init)
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return (await response.json()) as Result
}
async function edit(...edits: object[]): Promise<void> {
  const response = await fetch(
    `${system.url('sandbox-provider')}/sandbox/companies/${REALM}/edits`,
    postJson({ edits }),
  )
  expect(response.status).toBe(200)
}
async function sweep(): Promise<void> {
  const before = await coordinator<{ SweptAt: string | null }>(`realms/${REALM}/changes`)
  await coordinator('schedules/ChangeFeed/sweep/run', {})
  await eventually(async () => {
    const after = await coordinator<{ SweptAt: string | null }>(`realms/${REALM}/changes`)
    expect(after.SweptAt).not.toBe(before.SweptAt)
  })
}
async function create(id: string): Promise<string> {
  await coordinator('processes/InvoiceExport/transactions', {
    TransactionID: id,
    InitialData: id,
    Realm: REALM,
  })
  return eventually(async () => {
    const run = await coordinator<{ Status: string; Items: readonly { Data: string }[] }>(
      `processes/InvoiceExport/transactions/${id}`,
    )
    expect(run.Status).toBe('Completed')
    return run.Items[0]?.Data ?? ''
  })
}
const stateOf = async (id: string) => {
  const { items } = await coordinator<EntryPage>(`entries?realm=${REALM}&entity=Invoice&id=${id}`)
  return items.map(({ State, Changed }) => [State, Changed])
}
const since = new Date(Date.now() - 3_600_000).toISOString()
const books = () => coordinator<BooksView>(`realms/${REALM}/books?since=${since}`)

it('a person’s edits, voids and deletions of what runs have written are found by the next sweep, and start runs', async () => {
  const [kept, edited, voided, deleted] = await Promise.all(['A', 'B', 'C', 'D'].map(create))
  await eventually(() => coordinator(`realms/${REALM}/changes`))
  expect(await books()).toMatchObject({
    Ready: false,
    Entries: { Unverified: 4 },
    Sentence: 'not ready to close: 4 entries are not verified yet; no entry is verified',
  })
  await sweep()
  expect(await books()).toMatchObject({
    Ready: true,
    Sentence: 'ready to close: 4 entries are verified',
  })
  await edit(
    { entity: 'Invoice', id: edited, change: { PrivateNote: 'another note' } },
    { entity: 'Invoice', id: voided, operation: 'void' },
    { entity: 'Invoice', id: deleted, operation: 'delete' },
  )
  await sweep()
  expect(await stateOf(kept ?? '')).toEqual([['Verified', null]])
  expect(await stateOf(edited ?? '')).toEqual([['ChangedOutside', ['PrivateNote']]])
  expect(await stateOf(voided ?? '')).toEqual([['Voided', null]])
  expect(await stateOf(deleted ?? '')).toEqual([['Deleted', null]])
  const started = await eventually(async () => {
    const { items } = await coordinator<{
      items: readonly { TransactionID: string; InitialData: { id: string; state: string } }[]
    }>('processes/BookAudit/transactions')
    expect(items).toHaveLength(3)
    return items.map(({ InitialData: { id, state } }) => `${id} ${state}`)
  })
  expect(started.toSorted()).toEqual(
    [`${edited} ChangedOutside`, `${voided} Voided`, `${deleted} Deleted`].toSorted(),
  )
  expect(await books()).toMatchObject({
    Ready: false,
    Entries: { Verified: 1, Changed: 1, Voided: 1, Deleted: 1, Missing: 0 },
  })
})
