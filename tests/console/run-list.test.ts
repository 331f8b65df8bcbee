/** Tests the list of runs in a browser: the menu of a row, the order, invalid filters in the URL, and an empty list. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'

describe('the list of runs in the console', () => {
  let at: FakeConsole
  let page: Page

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.add(['done-1', 'done-2', 'done-3'])
    at.fake.add(['broken'], { Status: 'Failed' })
    at.fake.add(['waits'], { Status: 'Waiting', WaitingFor: 'ACC-1', Realm: '1' })
    at.fake.add(['again'], { Status: 'Running', Attempt: 4, ErrorClass: 'network' })
    await at.context.grantPermissions(['clipboard-read', 'clipboard-write'])
    page = await at.signIn()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  const show = (query: string) => page.goto(`${at.url}/runs${query}`)
  const rows = () => page.locator('.runs tbody tr:not(.spacer) td:nth-child(3) a').allTextContents()
  const row = (id: string) => page.getByRole('row').filter({ hasText: id })
  const openMenu = (id: string) => page.getByRole('button', { name: `More about ${id}, run 0` })
  const copied = () => page.evaluate<string>('navigator.clipboard.readText()')

  it('the list, the page and the search hit of a run that retries show the number of its attempt, not only Running', async () => {
    await show('?idPrefix=again')
    await row('again').getByText('attempt 4').first().waitFor()
    expect(await row('again').textContent()).toContain('Running')
    await page.getByRole('link', { name: 'again', exact: true }).click()
    await page.getByRole('region', { name: 'State' }).getByText('attempt 4').first().waitFor()
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox', { name: 'Search' }).fill('again')
    await page.getByRole('option', { name: 'Running, attempt 4' }).waitFor()
    await page.keyboard.press('Escape')
  })

  it('after a bulk action got no response and the selection has changed, the next confirmation sends the new selection with a new key', async () => {
    const sent: { readonly ids: unknown; readonly key: string | undefined }[] = []
    await page.route('**/api/bulk', async (route) => {
      const { DryRun, Ids } = route.request().postDataJSON() as { DryRun?: boolean; Ids: unknown }
      if (DryRun === true)
        return route.fulfill({
          status: 202,
          json: { ID: 'count', Status: 'Completed', Done: 1, Skipped: 0, Failed: 0 },
        })
      sent.push({ ids: Ids, key: route.request().headers()['idempotency-key'] })
      return route.fulfill({ status: 502, body: 'Bad gateway' })
    })
    await show('')
    await page.getByLabel('Select done-1', { exact: true }).check()
    for (let selection = 0; selection < 2; selection += 1) {
      await page.getByRole('button', { name: 'Replay…' }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByText('1 run can be changed').waitFor()
      await dialog.getByLabel('Reason').fill('a reason')
      for (const _ of ['first', 'repeated']) {
        await dialog.getByRole('button', { name: 'Replay', exact: true }).click()
        await dialog.getByRole('alert').getByText('responded with 502').waitFor()
      }
      await dialog.getByRole('button', { name: 'Back' }).click()
      await page.getByLabel('Select done-2', { exact: true }).check()
      await page.getByLabel('Select done-1', { exact: true }).uncheck()
    }
    await eventually(() => expect(sent).toHaveLength(4))
    expect(sent.map(({ ids }) => ids)).toEqual([['done-1'], ['done-1'], ['done-2'], ['done-2']])
    const keys = sent.map(({ key }) => key)
    expect([keys[0], keys[2]]).toEqual([keys[1], keys[3]])
    expect(keys[0]).not.toBe(keys[2])
    await page.unrouteAll()
  })

  it('the menu of a row copies the id, a link or a command, and opens the run in the same or a new tab', async () => {
    await show('?status=Failed')
    const items = {
      'Copy the id': 'broken',
      'Copy a link': `${at.url}/runs/${PROCESS}/broken?run=0`,
      'Copy as command': `npx --no -- integration-host transactions show --process ${PROCESS} --replay 0 -- broken`,
    }
    for (const [name, text] of Object.entries(items)) {
      await openMenu('broken').click()
      await page.getByRole('button', { name, exact: true }).click()
      await page.getByText('Copied.').last().waitFor()
      expect(await copied()).toBe(text)
    }
    await openMenu('broken').click()
    await page.getByRole('button', { name: 'Resume…' }).waitFor()
    await expectAccessible(page, 'runs-menu')
    const opened = page.waitForEvent('popup')
    await page.getByRole('link', { name: 'Open in a new tab' }).click()
    const tab = await opened
    await tab.getByRole('heading', { level: 1, name: 'broken' }).waitFor()
    await tab.close()
    await openMenu('broken').click()
    await page.getByRole('link', { name: 'Open', exact: true }).click()
    await page.waitForURL(/\/runs\/OrderProcess\/broken\?run=0$/)
  })

  it.each([
    ['comfortable', 74],
    ['compact', 68],
  ])(
    'a narrow list with %s rows shows status, id, reason and company of each run in rows of %i pixels',
    async (density, height) => {
      await page.setViewportSize({ width: 400, height: 900 })
      await page.evaluate(`localStorage.setItem('density', '${density}')`)
      await show('')
      const cell = row('waits').getByRole('cell').nth(1)
      for (const text of ['Waiting', 'waits', 'Waits for ACC-1', '1', `${PROCESS} · order`])
        await cell.getByText(text, { exact: true }).waitFor()
      const heights = await page.evaluate<number[]>(
        `[...document.querySelectorAll('.runs tbody tr')].map((row) => row.offsetHeight)`,
      )
      // A row whose content is higher than the list expects would be higher than the other rows.
      expect(new Set(heights)).toEqual(new Set([height]))
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(400)
      await page.evaluate(`localStorage.removeItem('density')`)
      await page.setViewportSize({ width: 1280, height: 720 })
    },
  )

  it('the menu of a row can be used with the keyboard, and disables actions that are not possible for the run', async () => {
    await show('')
    await openMenu('done-1').click()
    const cancel = page.getByRole('button', { name: 'Cancel run…' })
    await cancel.waitFor()
    expect(await cancel.getAttribute('aria-disabled')).toBe('true')
    expect(await cancel.getAttribute('title')).toBe('The run has ended.')
    await page.keyboard.press('Escape')
    await openMenu('waits').focus()
    await page.keyboard.press('Enter')
    await cancel.waitFor()
    await cancel.focus()
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog')
    expect(await dialog.getByRole('heading').textContent()).toBe('Cancel run 0 of waits?')
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    expect(await page.evaluate('document.activeElement.getAttribute("aria-label")')).toBe(
      'More about waits, run 0',
    )
    expect(at.fake.acted).toEqual([])
  })

  it('an action from the menu of a row changes the run, and the row keeps its position in the list', async () => {
    at.fake.add(['stopped'], { Status: 'Running' })
    await show('')
    await row('stopped').waitFor()
    const before = await rows()
    await openMenu('stopped').click()
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await page.getByRole('dialog').getByLabel('Reason').fill('from the list')
    await page.getByRole('button', { name: 'Cancel run', exact: true }).click()
    await row('stopped').getByText('Cancelled', { exact: true }).waitFor()
    expect(await rows()).toEqual(before)
    expect(at.fake.acted).toMatchObject([
      {
        path: `/processes/${PROCESS}/transactions/stopped/cancel`,
        body: { Reason: 'from the list' },
      },
    ])
  })

  it('the URL contains the selected order of the runs, and the order "last changed first" begins with a changed run', async () => {
    const order = page.getByRole('combobox', { name: /^Order/ })
    await show('')
    await row('done-1').waitFor()
    const run = at.fake.runs.find(({ id }) => id === 'done-1')
    if (run !== undefined) at.fake.change([[run, 'Completed']])
    await order.selectOption('last changed first')
    await page.waitForURL(/\?order=updated$/)
    await expect.poll(async () => (await rows())[0]).toBe('done-1')
    await page.reload()
    await expect.poll(async () => (await rows())[0]).toBe('done-1')
    await order.selectOption('newest first')
    await page.waitForURL(/\/runs$/)
    await expect.poll(async () => (await rows()).at(-1)).toBe('done-1')
  })

  it('the filter "Needs attention" shows the failed and the waiting runs', async () => {
    await show('')
    await page.getByRole('link', { name: 'Needs attention' }).click()
    await expect.poll(rows).toEqual(['waits', 'broken'])
    expect(new URL(page.url()).search).toBe(
      '?status=Failed&status=UndoFailed&status=Waiting&children=true',
    )
  })

  it('the list of runs ignores an invalid filter in the URL, and shows a button that removes the filter', async () => {
    await show('?status=Broken&class=http_503&since=yesterday&unknown=1')
    await expect.poll(rows).toEqual(['broken'])
    const wrong = page.getByRole('button', { name: /Remove the wrong value/ })
    expect(await wrong.allTextContents()).toMatchObject([
      expect.stringContaining('Status: Broken is not possible'),
      expect.stringContaining('Changed since: yesterday is not possible'),
    ])
    await expectAccessible(page, 'runs-wrong-address')
    await wrong.first().click()
    await expect.poll(() => wrong.count()).toBe(1)
    expect(new URL(page.url()).searchParams.has('status')).toBe(false)
    await wrong.first().click()
    await expect.poll(() => wrong.count()).toBe(0)
    expect(await rows()).toEqual(['broken'])
    expect(await page.getByRole('alert').count()).toBe(0)
  })

  it('an empty list shows how many runs each filter hides, and offers to remove the filter', async () => {
    await show('?status=Completed&class=http_503')
    await page.getByText('No run matches.').waitFor()
    const hidden = page.getByRole('region', { name: 'No runs' }).getByRole('listitem')
    await expect
      .poll(() => hidden.allTextContents())
      .toMatchObject([
        expect.stringMatching(/^3 do without “.*Error class: http_503.*”/),
        expect.stringMatching(/^1 does without “.*Status: Completed.*”/),
      ])
    await expectAccessible(page, 'runs-none-match')
    await hidden.first().getByRole('button', { name: 'Remove it' }).click()
    await page.waitForURL(/\?status=Completed$/)
    await expect.poll(rows).toEqual(['done-3', 'done-2', 'done-1'])
  })

  it('an empty list reads at most 20 runs for each filter to count the runs that it hides', async () => {
    at.fake.add(Array.from({ length: 21 }, (_, index) => `many-${index}`))
    const counted: number[] = []
    page.on('response', async (response) => {
      const url = new URL(response.url())
      if (url.pathname !== '/api/runs' || url.searchParams.has('class')) return
      // The body of a response cannot be read any more if the page has sent the next request meanwhile.
      const body: unknown = await response.json().catch(() => null)
      if (body !== null) counted.push((body as { readonly Runs: readonly unknown[] }).Runs.length)
    })
    await show('?idPrefix=many-&class=http_503')
    await page.getByText('20 or more do without “Error class: http_503”').waitFor()
    await expect.poll(() => counted).toEqual([20])
  })

  it('an id is shown whole, and a long one makes its row higher', async () => {
    const id = 'nightly@2026-11-27T02:00:00.000Z/4620816365291/invoices'
    at.fake.add([id], { Status: 'Completed' })
    await show('?idPrefix=nightly')
    const link = page.getByRole('link', { name: id, exact: true })
    await link.waitFor()
    const cell = `document.querySelector('.runs td.id')`
    const sizes = `[${cell}.offsetHeight, ${cell}.scrollHeight - ${cell}.clientHeight]`
    expect(await page.evaluate(sizes)).toEqual([52, 0])
  })
})
