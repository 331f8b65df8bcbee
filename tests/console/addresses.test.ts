/** Tests that the address of a page contains all that a person has selected: another browser shows the same for it. */
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { WatchedContext } from './browser.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { failedAttempt, PROCESS } from './fake-installation.ts'

const credential = (realm: string, State: CredentialView['State']): CredentialView => ({
  Name: `ACC-${realm}`,
  Environment: realm,
  Label: `Company ${realm}`,
  Status: 'active',
  State,
  Version: 3,
  Expiry: new Date(Date.now() + 3_600_000).toISOString(),
  RefreshedAt: new Date().toISOString(),
  Attempts: 0,
})

/** A browser script that returns the selected values, the current links and the entries of the lists of a page. */
const SHOWN = `(() => {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent)
  return {
    fields: [...document.querySelectorAll('main input, main select')].map(({ name, value }) => name + '=' + value),
    current: texts('main [aria-current]'),
    chips: texts('main [aria-label="Filters"] li'),
    caption: texts('.timeline figcaption span'),
    rows: texts('main tbody a, main .activity li strong'),
    headings: texts('h1, h2'),
  }
})()`
const field = (page: Page, name: string) => page.locator(`main form [name=${name}]`)
async function fill(page: Page, values: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, value] of Object.entries(values)) {
    await field(page, name).fill(value)
    await page.keyboard.press('Enter')
  }
}

/** What a person selects on a page, and the query and the fragment of the address after that. */
const SELECTIONS: readonly {
  readonly path: string
  readonly select: (page: Page) => Promise<unknown>
  readonly address: RegExp
}[] = [
  {
    path: '/runs',
    async select(page) {
      await page.getByRole('link', { name: /^Failed/ }).click()
      await field(page, 'process').selectOption(PROCESS)
      await fill(page, { step: 'order', class: 'http_503', realm: '1', idPrefix: 'bro' })
      await field(page, 'hours').selectOption('last 7 days')
      await page.getByRole('combobox', { name: /^Order/ }).selectOption('last changed first')
    },
    address:
      /\?status=Failed&status=UndoFailed&children=true&process=OrderProcess&step=order&class=http_503&realm=1&idPrefix=bro&since=[^&]+&order=updated$/,
  },
  {
    path: '/runs?waitingFor=ACC-1&version=2&tag=plan%3Agold&from=2026-01-01T00:00:00Z&until=2027-01-01T00:00:00Z',
    select: (page) => page.getByRole('link', { name: 'In doubt' }).click(),
    address:
      /\?waitingFor=ACC-1&version=2&tag=plan%3Agold&from=[^&]+&until=[^&]+&inDoubt=true&children=true$/,
  },
  {
    path: '/companies',
    async select(page) {
      await page.getByRole('link', { name: /^Must be reconnected/ }).click()
      await fill(page, { q: 'Comp' })
    },
    address: /\?state=must_reconnect&q=Comp$/,
  },
  {
    path: '/activity',
    async select(page) {
      await page.getByRole('navigation', { name: 'Kinds of entries' }).getByText('Runs').click()
      await fill(page, { person: 'ada', realm: '1', process: PROCESS, id: 'broken' })
    },
    address: /\?kind=runs&person=ada&realm=1&process=OrderProcess&id=broken$/,
  },
  {
    path: '/charts',
    select: (page) => page.getByRole('link', { name: '7 days' }).click(),
    address: /\?range=7d$/,
  },
  {
    path: `/runs/${PROCESS}/broken?run=0`,
    select: (page) => page.getByRole('link', { name: /^Attempts/ }).click(),
    address: /\?run=0#attempts$/,
  },
]

describe('the addresses of the pages of the console', () => {
  let at: FakeConsole
  let page: Page
  let other: WatchedContext

  beforeAll(async () => {
    // No Prometheus runs at this address, so the charts are empty.
    at = await startFakeConsole({ PROMETHEUS_URL: 'http://127.0.0.1:9' })
    at.fake.credentials.push(credential('1', 'must_reconnect'), credential('2', 'active'))
    at.fake.add(['done'])
    at.fake.add(['broken'], {
      Status: 'Failed',
      ErrorClass: 'http_503',
      Realm: '1',
      Attempts: [1, 2, 3].map((Attempt) =>
        failedAttempt({
          Attempt,
          StartedAt: new Date(Date.UTC(2026, 0, 1, 0, Attempt)).toISOString(),
          FinishedAt: new Date(Date.UTC(2026, 0, 1, 0, Attempt, 30)).toISOString(),
        }),
      ),
    })
    page = await at.signIn()
    other = await at.another()
    await other.context.addCookies(await at.context.cookies())
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })

  it.each(SELECTIONS)(
    'another browser shows for the address of $path what a person has selected',
    async ({ path, select, address }) => {
      await page.goto(at.url + path)
      await select(page)
      await expect.poll(() => page.url()).toMatch(address)
      const colleague = await other.open(page.url())
      await expect
        .poll(async () => [await colleague.evaluate(SHOWN), colleague.url()])
        .toEqual([await page.evaluate(SHOWN), page.url()])
      expect(await page.getByRole('button', { name: /^Remove the wrong value/ }).count()).toBe(0)
      expect(at.problems).toEqual([])
      await colleague.close()
    },
  )
})
