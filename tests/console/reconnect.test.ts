/**
 * Tests in a real browser how the console reports a company whose grant was revoked, and how the owner reconnects the
 * company.
 */
import { fileURLToPath } from 'node:url'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { COMPANY, connectCompany } from '../../host/src/story.ts'
import { expectAccessible } from './accessibility.ts'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

const LABEL = 'Rosewood & Sons'
const folder = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

describe('a company with a revoked grant in the console', () => {
  let at: ConsoleBrowser
  let page: Page

  beforeAll(async () => {
    at = await startConsoleBrowser({
      PROCESSES: [
        folder('../../services/coordinator/src/processes'),
        folder('picture-processes'),
      ].join(),
    })
    await connectCompany(at.host, { stage() {}, line() {} })
    await at.request(at.host.tokenService + credential, { Label: LABEL }, 'PATCH')
    page = await at.signIn()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())

  const credential = `/credentials/ACC-${COMPANY.realm}`
  const request = async (url: string, body?: unknown): Promise<unknown> =>
    (await at.request(url, body)).json()
  const stored = () =>
    request(at.host.tokenService + credential) as Promise<{ State: string; Version: number }>
  const condition = (name: string) => page.getByRole('listitem').filter({ hasText: name })
  const state = () => page.getByRole('region', { name: 'State' })

  /** Creates a connect link on the page of the company, and opens the link as the owner of the company. */
  async function openLink(): Promise<Page> {
    await page.getByRole('button', { name: 'Reconnect…' }).click()
    const dialog = page.getByRole('dialog')
    expect(await dialog.textContent()).toContain(LABEL)
    expect(await dialog.textContent()).toContain('Only this company is accepted')
    await dialog.getByRole('button', { name: 'Make a link', exact: true }).click()
    const opened = at.context.waitForEvent('page')
    await page.getByRole('link', { name: 'Open in a new tab' }).click()
    return opened
  }

  it('the page Now shows a company with a revoked grant, the time and class of the fault, and the waiting runs', async () => {
    await at.sandbox(`realms/${COMPANY.realm}/revoke`)
    const queued = await request(`${at.host.coordinator}/processes/InvoiceProcess/transactions`, {
      TransactionID: 'INV-1',
      InitialData: { customer: 'Alma', amount: 1, notify: at.host.demoApi },
      Realm: COMPANY.realm,
    })
    expect(queued).toMatchObject({ TransactionID: 'INV-1' })
    // token-service retries a rejected refresh token a few times before it reports that the company must be
    // reconnected.
    await eventually(async () => {
      await request(`${at.host.tokenService}${credential}/refresh`, {})
      expect((await stored()).State).toBe('must_reconnect')
    })
    const broken = condition('1 company must be reconnected')
    await broken.waitFor()
    for (const text of [
      LABEL,
      'disconnected by its owner, or used by another program',
      'Only a new authorization by the owner',
      '1 run waits',
    ])
      await expect.poll(() => broken.textContent(), { timeout: 10_000 }).toContain(text)
    const time = await broken.locator('time').getAttribute('datetime')
    expect(Math.abs(Date.parse(time ?? '') - Date.now())).toBeLessThan(60_000)
    await broken.getByRole('link', { name: 'Show', exact: true }).click()
    await page.waitForURL(`${at.console.url}/companies/${COMPANY.realm}`)
    await state().getByText('Must be reconnected', { exact: true }).waitFor()
  })

  it('a connect link stays valid if the owner clicks its button twice or goes back from the page of the provider', async () => {
    const owner = await openLink()
    const link = owner.url()
    await owner.getByRole('button', { name: 'Connect' }).dblclick()
    await owner.getByLabel('Northwind Trading').waitFor()
    await owner.goBack()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByLabel('Northwind Trading').waitFor()
    await owner.goto(link)
    expect(await owner.getByRole('heading').textContent()).toBe('Connect your company')
    await owner.close()
  })

  it('an owner who chooses another company gets an explanation with a button to start again, and no credential changes', async () => {
    const before = await stored()
    const owner = await openLink()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByLabel('Northwind Trading').check()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByText(COMPANY.realm).first().waitFor()
    expect(await owner.getByRole('main').textContent()).toContain(
      `for the company ${LABEL} (${COMPANY.realm}), but the company`,
    )
    await expectAccessible(owner, 'small-other-company')
    // The page of the provider sends the state again, which was used.
    await owner.goBack()
    await owner.getByLabel(COMPANY.name).check()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByText('the state was used before').waitFor()
    await owner.getByRole('button', { name: 'Start again' }).click()
    await owner.getByLabel('Northwind Trading').waitFor()
    await owner.close()
    const history = page.getByRole('region', { name: 'History' })
    await history.getByText('chose another company at the provider instead of').waitFor()
    expect(await stored()).toMatchObject(before)
    expect(await request(`${at.host.tokenService}/credentials/summary`)).toMatchObject({ Total: 1 })
    expect(await state().getByText('Must be reconnected', { exact: true }).count()).toBe(1)
  })

  it('when the owner reconnects a company, the pages show the active company and its continued run without a reload', async () => {
    const run = await at.open('/runs/InvoiceProcess/INV-1')
    const ofRun = run.getByRole('region', { name: 'State' })
    await ofRun.getByText('Waiting', { exact: true }).waitFor()
    await ofRun.getByText(`Waits for ${LABEL}, which must be reconnected.`).waitFor()
    await ofRun.getByRole('button', { name: 'Reconnect…' }).waitFor()
    await run.evaluate("globalThis.isSamePage = true; 'set'")
    await page.evaluate("globalThis.isSamePage = true; 'set'")
    const owner = await openLink()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByLabel(COMPANY.name).check()
    await owner.getByRole('button', { name: 'Connect' }).click()
    await owner.getByRole('heading', { name: 'Connected' }).waitFor()
    await owner.close()
    await state().getByText('Active', { exact: true }).waitFor()
    await run
      .getByRole('row', { name: 'invoice' })
      .filter({ hasText: 'Completed' })
      .first()
      .waitFor()
    expect(await ofRun.getByRole('button', { name: 'Reconnect…' }).count()).toBe(0)
    for (const one of [page, run]) expect(await one.evaluate('globalThis.isSamePage')).toBe(true)
    await page.getByRole('link', { name: 'Now' }).first().click()
    await condition('must be reconnected').waitFor({ state: 'detached' })
    expect(at.problems).toEqual([])
  })
})
