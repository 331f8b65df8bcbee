/** Tests in a browser that the page of a company shows the runs that wait for this company. */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'

const credential = (realm: string): CredentialView => ({
  Name: `ACC-${realm}`,
  Environment: realm,
  Label: `Company ${realm}`,
  Status: 'active',
  State: 'active',
  Version: 3,
  Expiry: new Date(Date.now() + 3_600_000).toISOString(),
  RefreshedAt: new Date().toISOString(),
  Attempts: 0,
})

describe('the runs that wait for a company in the console', () => {
  let at: FakeConsole
  let page: Page

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.credentials.push(credential('1'), credential('2'))
    const ids = Array.from({ length: 7 }, (_, index) => `waits-${index + 1}`)
    at.fake.add(ids, { Status: 'Waiting', WaitingFor: 'ACC-1', Realm: '1' })
    at.fake.add(['other'], { Status: 'Waiting', WaitingFor: 'ACC-3', Realm: '3' })
    page = await at.signIn()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  const waiting = () => page.getByRole('region', { name: 'Waiting runs' })

  it('the page of a company lists the newest waiting runs with the total number, and changes without a reload', async () => {
    await page.goto(`${at.url}/companies/1`)
    const list = waiting().getByRole('listitem')
    await expect.poll(() => list.count()).toBe(5)
    expect(await list.first().textContent()).toContain('waits-7')
    await expect.poll(() => waiting().textContent()).toContain('7 runs wait for this company')
    await expectAccessible(page, 'company-waiting')
    const run = at.fake.runs.find(({ id }) => id === 'waits-7')
    if (run !== undefined) at.fake.change([[run, 'Completed']])
    await waiting().getByText('6 runs wait').waitFor()
    await waiting().getByRole('link', { name: '6 runs wait' }).click()
    await page.getByRole('link', { name: 'waits-6', exact: true }).waitFor()
    expect(new URL(page.url()).search).toBe(
      '?status=Waiting&waitingFor=ACC-1&waitingFor=paused%3A1&children=true',
    )
    expect(await page.getByRole('link', { name: 'other', exact: true }).count()).toBe(0)
  })

  it('the page of a company states that no run waits for the company', async () => {
    await page.goto(`${at.url}/companies/2`)
    await expect
      .poll(() => waiting().textContent())
      .toBe('Waiting runsNo run waits for this company.')
  })
})
