/**
 * Tests the conditions on the page Now in a browser: the actions of the conditions, and what the conditions show while
 * a service is unavailable.
 */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'

const BEGAN = '2026-11-24T03:00:00.000Z'
const broken = (realm: string): CredentialView => ({
  Name: `ACC-${realm}`,
  Environment: realm,
  Label: `Company ${realm}`,
  Status: 'faulted',
  State: 'must_reconnect',
  Version: 3,
  Expiry: BEGAN,
  RefreshedAt: BEGAN,
  Attempts: 4,
  Fault: {
    Code: 'invalid_grant',
    Message: 'rejected',
    At: new Date().toISOString(),
    Since: BEGAN,
    Attempts: 4,
    Final: true,
  },
})

describe('the conditions on the page Now of the console', () => {
  let at: FakeConsole
  let page: Page

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.credentials.push(broken('1'), broken('2'))
    at.fake.add(['broken'], { Status: 'Failed' })
    at.fake.add(['rejected'], { Status: 'Failed', ErrorClass: 'http_422' })
    at.fake.add(['twice', 'named'], {
      Status: 'Failed',
      ErrorClass: 'http_400',
      LastError:
        '6240 Duplicate Name Exists Error: The name exists. (POST http://gateway/v3 responded with 400)',
    })
    page = await at.signIn()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  const condition = (title: string | RegExp) =>
    page.getByRole('listitem').filter({ hasText: title })

  it('Now, the list and the run say with which code and message the provider has rejected runs, and what helps', async () => {
    await page.goto(at.url)
    const rejected = condition('6240 Duplicate Name Exists Error')
    await rejected.getByText('2 runs failed at').waitFor()
    await rejected.getByText('has this name').waitFor()
    await rejected.getByRole('link', { name: 'Show', exact: true }).click()
    await page.waitForURL(/class=6240&children=true$/)
    const row = page.getByRole('row').filter({ hasText: 'named' })
    await row.getByText('6240 Duplicate Name Exists Error', { exact: true }).waitFor()
    expect(await page.getByRole('row').filter({ hasText: 'rejected' }).count()).toBe(0)
    await page.getByRole('link', { name: 'named', exact: true }).click()
    await page.getByText('the provider responded with 6240').first().waitFor()
    await page.getByText('The name exists.').waitFor()
    await expectAccessible(page, 'run-rejected')
  })

  it('the condition about companies that must be reconnected says when the first refresh failed, and links to these companies', async () => {
    await page.goto(at.url)
    const companies = condition('2 companies must be reconnected')
    await companies.waitFor()
    expect(await companies.textContent()).toContain('first failure')
    expect(await companies.locator('time').first().getAttribute('datetime')).toBe(BEGAN)
    await companies.getByRole('button', { name: 'Send links…' }).click()
    await page.waitForURL(`${at.url}/companies?state=must_reconnect`)
    const buttons = page.getByRole('button', { name: 'Reconnect…' })
    await expect.poll(() => buttons.count()).toBe(2)
    await buttons.first().click()
    expect(await page.getByRole('dialog').getByRole('heading').textContent()).toBe(
      'Make a link to reconnect Company 1?',
    )
    expect(await page.getByRole('dialog').textContent()).toContain(
      'The link leads to the page of the provider',
    )
    await page.keyboard.press('Escape')
  })

  it('if the data of failed runs was rejected, their condition first offers copies with changes, and the resume names its consequence', async () => {
    await page.goto(at.url)
    const buttons = condition(/run failed.*http_422/).getByRole('button')
    await buttons.first().waitFor()
    expect(await buttons.allTextContents()).toEqual(['Queue a copy with changes…', 'Resume 1…'])
    expect(
      await condition(/run failed.*http_503/)
        .getByRole('button')
        .allTextContents(),
    ).toEqual(['Resume 1…'])
    await buttons.last().click()
    await page.getByRole('dialog').getByText('The same data is sent again').waitFor()
    await page.keyboard.press('Escape')
    await buttons.first().click()
    await page.getByRole('button', { name: 'More about rejected, run 0' }).click()
    expect(new URL(page.url()).search).toBe(
      `?status=Failed&process=${PROCESS}&step=order&class=http_422&children=true`,
    )
    const menu = page.locator('.menu.more:popover-open').getByRole('button')
    await menu.getByText('Resume…').waitFor()
    await expectAccessible(page, 'runs-rejected-menu')
    const actions = (await menu.allTextContents()).filter((text) => text.endsWith('…'))
    expect(actions[0]).toBe('Queue a copy with changes…')
    await menu.getByText('Queue a copy with changes…').click()
    await page.getByRole('dialog').getByRole('heading', { name: /copy/i }).waitFor()
    await page.keyboard.press('Escape')
  })

  it('the pages Now and Activity and the page of the company describe a rejected grant in the same words', async () => {
    at.fake.audit.push({
      Seq: 1,
      At: BEGAN,
      Who: 'routine',
      What: 'faulted',
      Name: 'ACC-1',
      Version: 3,
      Outcome: 'invalid_grant',
      Previous: '0'.repeat(64),
      Hash: '1'.repeat(64),
    })
    for (const path of ['/', '/activity', '/companies/1']) {
      await page.goto(at.url + path)
      const event = page.getByRole('listitem').filter({ hasText: 'routine' })
      await event.getByText('invalid_grant').waitFor()
      expect(await event.textContent()).toContain('routine could not refresh Company 1')
    }
  })

  it('while the coordinator does not respond, the page Now shows its last conditions and counts in grey with their time', async () => {
    await page.goto(at.url)
    const failed = condition(/run failed.*http_503/)
    await failed.waitFor()
    expect(await failed.getByText('as of').count()).toBe(0)
    at.fake.reject = (_, path) =>
      path.startsWith('/processes') ? { code: 'store_unavailable', detail: 'no database' } : null
    await failed.getByText('as of').waitFor()
    await page.getByRole('region', { name: 'Runs' }).getByText('as of').waitFor()
    const filter = "getComputedStyle(document.querySelector('.condition.outdated')).filter"
    expect(await page.evaluate(filter)).toBe('grayscale(1)')
    expect(await condition('2 companies must be').getByText('as of').count()).toBe(0)
    await expectAccessible(page, 'now-outdated')
    await page.goto(`${at.url}/runs`)
    await page.getByText('Numbers as of').waitFor()
    await page.goto(`${at.url}/processes`)
    const alert = page.getByRole('alert').filter({ hasText: 'no database' })
    await alert.filter({ hasText: 'no database. It is tried again by itself.' }).waitFor()
    await page.goto(at.url)
    at.fake.reject = () => null
    await failed.getByText('as of').waitFor({ state: 'detached' })
  })
})
