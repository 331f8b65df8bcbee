/** Tests the parts of the page of a run in a browser: its address, the timeline, folded data, and missing runs. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { failedAttempt, PROCESS } from './fake-installation.ts'

/** The fake installation sets the creation time of its first run to this time. */
const BEGAN = Date.UTC(2026, 0, 1)
const time = (seconds: number): string => new Date(BEGAN + seconds * 1_000).toISOString()
const attempt = (number: number, from: number, until: number) =>
  failedAttempt({ Attempt: number, StartedAt: time(from), FinishedAt: time(until) })
const DATA = { order: { lines: [{ sku: 'A-1', price: { net: 1, currency: { code: 'EUR' } } }] } }

/** A browser script that returns, for each bar of the legend, its kind and how it is drawn, without its colours. */
const LEGEND_LOOKS = `[...document.querySelectorAll('.timeline .legend rect')].map((bar) => {
  const { fill, stroke, strokeDasharray } = getComputedStyle(bar)
  const filled = fill === 'none' ? 'none' : /[,/] ?0?\\.\\d+\\)/.test(fill) ? 'light' : 'full'
  const outline = stroke === 'none' ? 'none' : strokeDasharray
  const stripes = bar.parentElement.querySelectorAll('.stripe').length
  return [bar.getAttribute('class'), [bar.getAttribute('height'), filled, outline, stripes].join(' ')]
})`

describe('the page of a run in the console', () => {
  let at: FakeConsole
  let page: Page

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.add(['first'], {
      Status: 'Failed',
      InitialData: DATA,
      CompletedAt: time(100),
      Attempts: [attempt(1, 10, 20), attempt(2, 30, 50)],
    })
    page = await at.signIn()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
  })
  afterEach(() => expect(at.problems).toEqual([]))

  const show = async (more = '') => {
    await page.goto('about:blank')
    await page.goto(`${at.url}/runs/${PROCESS}/first${more}`)
  }
  const timeline = () => page.getByRole('region', { name: 'Timeline' })

  it('the URL names the selected section of the page, and opening this URL shows the same section', async () => {
    await show()
    await page.getByRole('link', { name: 'Data', exact: true }).click()
    await page.getByText('Initial data').waitFor()
    expect(new URL(page.url()).hash).toBe('#data')
    await page.getByRole('link', { name: /^Attempts/ }).click()
    expect(new URL(page.url()).hash).toBe('#attempts')
    await show('#data')
    await page.getByText('Initial data').waitFor()
    const link = page.getByRole('link', { name: 'Data', exact: true })
    expect(await link.getAttribute('aria-current')).toBe('location')
    await expect
      .poll(() => page.evaluate('document.getElementById("data").getBoundingClientRect().top'))
      .toBeLessThan(720)
  })

  it('the first action on a run whose data the target rejected is a copy with changes, and the menu does not repeat it', async () => {
    at.fake.add(['rejected'], { Status: 'Failed', ErrorClass: 'http_405', InitialData: DATA })
    await page.goto(`${at.url}/runs/${PROCESS}/rejected`)
    const state = page.getByRole('region', { name: 'State' })
    await state.getByText('The same data is rejected again').waitFor()
    const copy = page.getByRole('button', { name: 'Queue a copy with changes…' })
    expect(await copy.count()).toBe(1)
    expect(await state.getByRole('button').first().textContent()).toBe(await copy.textContent())
    await expectAccessible(page, 'run-rejected')
    await copy.click()
    const dialog = page.getByRole('dialog')
    await expect.poll(() => dialog.getByLabel('Id (required)').inputValue()).toBe('rejected-copy')
    expect(JSON.parse(await dialog.getByLabel('Initial data').inputValue())).toEqual(DATA)
    await page.keyboard.press('Escape')
    await show()
    await state.getByRole('button', { name: 'Resume…' }).waitFor()
    expect(await state.getByRole('button').first().textContent()).toBe('Resume…')
  })

  it('JSON data is folded beyond three levels, and a person can unfold one level or all levels', async () => {
    await show('#data')
    const data = page.getByRole('region', { name: 'Data' })
    await data.getByText('"lines": [').waitFor()
    expect(await data.textContent()).not.toContain('sku')
    await data.getByText('2 members }').click()
    await data.getByText('"sku": "A-1"').waitFor()
    expect(await data.textContent()).not.toContain('EUR')
    await expectAccessible(page, 'run-data-folded')
    await data.getByRole('button', { name: 'Unfold all levels' }).click()
    await data.getByText('"code": "EUR"').waitFor()
    expect(JSON.parse((await data.locator('.json').textContent()) ?? '')).toEqual(DATA)
  })

  it('a failed attempt of 65 ms stays a bar that can be seen beside a wait of 5 min', async () => {
    at.fake.add(['patient'], {
      CreatedAt: time(0),
      CompletedAt: time(300.2),
      Attempts: [attempt(1, 0, 0.065), attempt(2, 300.065, 300.2)],
    })
    await page.goto(`${at.url}/runs/${PROCESS}/patient`)
    await timeline().waitFor()
    expect(await timeline().locator('figcaption span').textContent()).toBe('5 min')
    const widthOf = async (kind: string) =>
      (await timeline().locator(`ol ${kind}`).first().boundingBox())?.width ?? 0
    const attemptWidth = await widthOf('.failed')
    expect(attemptWidth).toBeGreaterThan(2)
    expect((await widthOf('.wait')) / attemptWidth).toBeGreaterThan(100)
  })

  it('no two kinds of bars in the legend of the timeline differ only in their colour', async () => {
    const further = { CreatedAt: time(0), CompletedAt: null, NextAttemptAt: time(10_000_000_000) }
    at.fake.add(['colourful'], {
      ...further,
      Status: 'Retrying',
      StepName: 'report',
      ErrorClass: 'http_503',
      Attempts: [
        attempt(1, 10, 20),
        { ...attempt(2, 30, 40), Outcome: 'completed' },
        { ...attempt(1, 50, 60), StepName: 'report', Outcome: 'in_doubt', FinishedAt: null },
      ],
    })
    at.fake.add(['in-flight'], { ...further, Status: 'Running', StartedAt: time(10) })
    const looks = new Map<string, string>()
    for (const id of ['colourful', 'in-flight']) {
      await page.goto(`${at.url}/runs/${PROCESS}/${id}`)
      await timeline().locator('.legend rect').first().waitFor()
      for (const [kind = '', look = ''] of await page.evaluate<string[][]>(LEGEND_LOOKS))
        looks.set(kind, look)
      if (id === 'colourful') await expectAccessible(page, 'run-legend')
    }
    expect([...looks.keys()].toSorted()).toEqual(
      ['completed', 'doubt', 'failed', 'next', 'queued', 'running', 'wait'].toSorted(),
    )
    expect(new Set(looks.values()).size, JSON.stringify([...looks])).toBe(looks.size)
  })

  it('the timeline and the table of attempts show the same attempts, waits only after outcomes that cause them, a doubt, and a copied step', async () => {
    const of = (number: number, Outcome: string, from: number, until: number | null) => ({
      ...attempt(number, from, until ?? from),
      StepName: 'report',
      Outcome,
      ...(until === null && { FinishedAt: null, ResponseStatus: null }),
    })
    at.fake.add(['eventful'], {
      Status: 'Completed',
      StepName: 'report',
      CreatedAt: time(0),
      CompletedAt: time(100),
      Items: [
        {
          StepName: 'order',
          Status: 'Copied',
          Attempt: 1,
          IdempotencyKey: 'key-of-order',
          ResponseStatus: 200,
          ResponseBody: null,
          Data: null,
          Error: null,
          StartedAt: null,
          FinishedAt: null,
        },
      ],
      Attempts: [
        of(1, 'http_503', 0, 10),
        of(2, 'http_429', 20, 30),
        // The coordinator does not count the attempt that a cool-down has prevented.
        of(2, 'credential_held', 40, 41),
        of(3, 'in_doubt', 50, null),
        // No further attempt follows a 404 by itself, and the run was not resumed.
        of(4, 'http_404', 60, 70),
        of(5, 'completed', 90, 100),
      ],
    })
    await page.goto(`${at.url}/runs/${PROCESS}/eventful`)
    const titles = timeline().locator('ol title')
    await expect.poll(() => titles.count()).toBeGreaterThan(6)
    const texts = await titles.allTextContents()
    const drawn = texts.flatMap((text) => {
      const [, number, outcome] = /^attempt (\d+): (\w+)/.exec(text) ?? []
      return number === undefined ? [] : [`report ${number} ${outcome}`]
    })
    const listed = await page.evaluate<string[]>(
      `[...document.querySelectorAll('#attempts tbody tr')].map(({ cells }) => cells[0].innerText.split('\\n')[0] + ' ' + cells[1].querySelector('bdi').textContent)`,
    )
    expect(drawn).toHaveLength(6)
    expect(listed).toHaveLength(6)
    expect(drawn).toEqual(listed)
    expect(texts.filter((text) => text.startsWith('waited after')).length).toBe(3)
    expect(texts.join()).not.toContain('after http_404')
    expect(texts.join()).toContain('in_doubt, its end is not recorded')
    expect(texts.join()).toContain('not counted')
    expect(await page.locator('#attempts').textContent()).toContain('not counted')
    expect(await timeline().textContent()).toContain('copied')
  })

  it('the page of a run shows skipped steps, the round and the progress of a step, and its state only with the data', async () => {
    const item = {
      StepName: 'order',
      Status: 'Skipped' as const,
      Attempt: 0,
      IdempotencyKey: 'key-of-order',
      ResponseStatus: null,
      ResponseBody: null,
      Data: null,
      Error: null,
      StartedAt: null,
      FinishedAt: null,
    }
    at.fake.add(['paged'], {
      Status: 'Running',
      StepName: 'report',
      CreatedAt: time(0),
      Items: [
        item,
        {
          ...item,
          StepName: 'report',
          Status: 'Running',
          Round: 6,
          State: { page: 'state-of-round-6' },
          Report: { Done: 7, Of: 12, Note: 'page <7>', At: time(10) },
        },
      ],
    })
    await page.goto(`${at.url}/runs/${PROCESS}/paged`)
    await page.getByText('7 of 12 · page <7>').waitFor()
    await page.getByText('· round 6').waitFor()
    expect(await page.locator('body').textContent()).toContain('Skipped')
    expect(await timeline().textContent()).toContain('skipped')
    expect(await page.locator('body').textContent()).not.toContain('state-of-round-6')
    await expectAccessible(page, 'run-paged')
    await page.getByRole('link', { name: 'Data', exact: true }).click()
    await page.getByText('State of report').waitFor()
    expect(await page.locator('#data').textContent()).toContain('state-of-round-6')
  })

  it('a step that polls is shown as waiting, with its last response and the time of the next request', async () => {
    at.fake.add(['polls'], {
      Status: 'Retrying',
      ErrorClass: 'step_waits',
      LastError: 'the step called waitFor and starts again later; GET http://x responded with 202',
      NextAttemptAt: new Date(Date.now() + 3_600_000).toISOString(),
      Attempt: 0,
    })
    await page.goto(`${at.url}/runs/${PROCESS}/polls`)
    const state = page.getByRole('region', { name: 'State' })
    await state.getByText('Waiting', { exact: true }).waitFor()
    expect(await state.textContent()).toMatch(/asks again in .*GET http:\/\/x responded with 202/)
    const step = page.getByRole('region', { name: 'Steps' }).getByRole('row').nth(1)
    expect(await step.textContent()).toContain('Waiting')
    await page.goto(`${at.url}/runs?idPrefix=polls`)
    const row = page.getByRole('row').filter({ hasText: 'polls' })
    await row.getByText(/Waiting: asks again in/).waitFor()
    expect(await row.textContent()).not.toContain('Retrying')
  })

  it('the page of a run lists the existing runs of the transaction if the URL names a missing run', async () => {
    await show('?run=7')
    const alert = page.getByRole('alert')
    await expect.poll(() => alert.textContent()).toBe('No run 7 of first. There is 0.')
    await expectAccessible(page, 'run-missing')
    await alert.getByRole('link', { name: '0' }).click()
    await timeline().waitFor()
    await show('?run=latest')
    await timeline().waitFor()
    await page.getByRole('button', { name: 'Remove the wrong value' }).click()
    await expect.poll(() => new URL(page.url()).search).toBe('')
  })

  it('the page of a run lists the existing processes if the URL names an unknown process', async () => {
    await page.goto(`${at.url}/runs/Unknown/first`)
    await expect
      .poll(() => page.getByRole('alert').textContent())
      .toBe(`There is no process Unknown. The loaded processes are: ${PROCESS}`)
  })
})
