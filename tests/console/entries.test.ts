/** Tests in a real browser how the console shows what runs have written to the books, and takes it back. */
import { fileURLToPath } from 'node:url'
import type { EntryPage } from '@integration-host/shared/contracts/company'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const PROCESSES = fileURLToPath(new URL('../support/faults/book-proof', import.meta.url))
const { realm, name } = COMPANY
/** The ids of the invoices, by the transactions that create them. */
const invoices: Record<string, string> = {}

describe('the console on what runs have written to the books', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser({ PROCESSES })
    await connectCompany(at.host, { stage() {}, line() {} })
    for (const TransactionID of ['kept', 'edited', 'voided', 'deleted-1', 'deleted-2'])
      await coordinator('processes/InvoiceExport/transactions', {
        TransactionID,
        InitialData: TransactionID,
        Realm: realm,
      })
    await eventually(async () => {
      const { items } = await coordinator<EntryPage>(`entries?realm=${realm}`)
      expect(items).toHaveLength(5)
      for (const { TransactionID, EntityID } of items) invoices[TransactionID] = EntityID
    })
    await edit(
      { id: invoices['edited'], change: { PrivateNote: 'another note' } },
      { id: invoices['voided'], operation: 'void' },
      { id: invoices['deleted-1'], operation: 'delete' },
      { id: invoices['deleted-2'], operation: 'delete' },
    )
    await eventually(() => coordinator(`realms/${realm}/changes`))
    await coordinator('schedules/ChangeFeed/sweep/run', {})
    await eventually(async () => {
      const { items } = await coordinator<EntryPage>(`entries?realm=${realm}&state=Deleted`)
      expect(items).toHaveLength(2)
    })
  }, 120_000)
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => at.endTest())

  async function coordinator<Result>(path: string, body?: object): Promise<Result> {
    const response = await at.request(`${at.host.coordinator}/${path}`, body)
    expect(response.ok, path).toBe(true)
    return (await response.json()) as Result
  }
  async function edit(...edits: object[]): Promise<void> {
    const url = `${at.host.sandboxProvider}/sandbox/companies/${realm}/edits`
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ edits: edits.map((one) => ({ entity: 'Invoice', ...one })) }),
    })
    expect(response.status).toBe(200)
  }

  it('a run shows at its step which of its objects were changed in the books, and that a replay creates them again', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs/InvoiceExport/edited#entries`)
    const steps = page.getByRole('region', { name: 'Steps' }).getByRole('row', { name: 'create' })
    await steps.getByText('Changed').waitFor()
    expect(await steps.textContent()).toContain(`Invoice ${invoices['edited']}`)
    expect(await steps.textContent()).toContain('PrivateNote')
    const entries = page.getByRole('region', { name: 'Entries' })
    expect(await entries.getByRole('row').count()).toBe(2)
    await expectAccessible(page, 'run-entries')
    await page.getByRole('button', { name: 'Replay…' }).click()
    await page.getByRole('dialog').getByText('is created once more').waitFor()
    await page.keyboard.press('Escape')
    await page.goto(`${at.console.url}/runs/InvoiceExport/kept`)
    await entries.getByText('As written').waitFor()
    expect(await page.getByRole('region', { name: 'Steps' }).getByRole('link').count()).toBe(0)
  })

  it('the page Now says how many objects were deleted in the books, and opens the list of them', async () => {
    const page = await at.signIn()
    const deleted = page.getByText('2 invoices that runs have written were deleted in the books')
    await deleted.waitFor({ timeout: 90_000 })
    await page.getByRole('listitem').filter({ has: deleted }).getByRole('link').first().click()
    await page.waitForURL(`${at.console.url}/entries?state=Deleted&entity=Invoice`)
    await page.getByRole('region', { name: 'Entries' }).getByText('deleted-1').waitFor()
    expect(await page.getByRole('row').count()).toBe(3)
  }, 120_000)

  it('a company leads to its entries, which can be filtered by what became of them', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/companies/${realm}`)
    await page.getByRole('link', { name: 'Its entries in the books' }).click()
    await page.getByRole('row').nth(5).waitFor()
    expect(await page.getByRole('row').nth(5).textContent()).toContain(name)
    const pages = page.getByRole('navigation', { name: 'Pages' })
    const current = pages.getByRole('link', { name: 'Entries', exact: true })
    expect(await current.getAttribute('aria-current')).toBe('page')
    expect(await page.title()).toContain('Entries')
    await expectAccessible(page, 'entries')
    await page.getByRole('link', { name: 'Voided', exact: true }).click()
    await page.getByRole('row', { name: 'voided' }).waitFor()
    expect(await page.getByRole('row').count()).toBe(2)
    await page.getByLabel('Id', { exact: true }).fill('no-such')
    await page.getByRole('button', { name: 'Filter' }).click()
    await page.getByText('No entry matches these filters.').waitFor()
  })

  it.each([
    ['its number', ''],
    ['its kind and its number', 'invoice '],
  ])(
    'the search finds an object in the books by %s, and the run that has created it',
    async (_, kind) => {
      const page = await at.signIn()
      await page.getByRole('button', { name: 'Search' }).click()
      const id = invoices['deleted-1'] ?? ''
      await page.getByRole('combobox').fill(kind + id)
      const objects = page.getByRole('group', { name: 'Objects in the books' })
      await objects.getByRole('option', { name: `Invoice ${id}` }).click()
      await page.waitForURL(`${at.console.url}/entries?realm=${realm}&entity=Invoice&id=${id}`)
      await page.getByRole('link', { name: 'deleted-1' }).click()
      await page.getByRole('heading', { name: 'deleted-1', level: 1 }).waitFor()
      expect(page.url()).toBe(`${at.console.url}/runs/InvoiceExport/deleted-1?run=0`)
    },
  )

  it('a person who takes runs back sees what became of each object', async () => {
    const page = await at.signIn()
    await page.goto(`${at.console.url}/runs?process=InvoiceExport`)
    await page.getByLabel('Select all runs that are loaded').click()
    await page.getByRole('button', { name: 'Take back…' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByText('can be changed').waitFor()
    await expectAccessible(page, 'take-back-dialog')
    await dialog.getByLabel('Reason').fill('imported twice')
    await dialog.getByRole('button', { name: 'Take back', exact: true }).click()
    await page.waitForURL(/\/bulk\/[\w-]+\?of=5$/)
    const rows = page.getByRole('region', { name: 'Objects in the books' }).getByRole('row')
    const row = (transaction: string) =>
      rows.filter({
        has: page.getByRole('link', { name: `Invoice ${invoices[transaction]}`, exact: true }),
      })
    await row('kept').getByText('Deleted').waitFor()
    await row('edited').getByText('changed since by a person or another program').waitFor()
    await row('deleted-1').getByText('no longer there').waitFor()
    await expectAccessible(page, 'take-back')
    await page.goto(`${at.console.url}/runs/InvoiceExport/kept`)
    const entries = page.getByRole('region', { name: 'Entries' })
    await entries.getByText('Written again').waitFor()
  })
})
