/**
 * Tests that the pages show the state of the coordinator after many quick changes, lost connections and restarts, and
 * if the clock of the browser is wrong.
 */
import type { OperationDetail } from '@integration-host/shared/contracts/operations'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { launchChromium, soon, watchedContext } from './browser.ts'
import { type ConsoleProcess, startConsoleProcess } from './console-process.ts'
import { type FakeConsole, KEYS, startFakeConsole } from './fake-console.ts'
import { type FakeRun, PROCESS, startFakeInstallation } from './fake-installation.ts'
import { largeRun } from './large-run.ts'
import { PASSWORD, signInAs, usersFile } from './users.ts'

const RUNS = 300
/** The time in which every page must show the state of the coordinator after an interruption. */
const SOON_MS = 5_000
const STATUSES = ['Queued', 'Running', 'Retrying', 'Failed', 'Completed'] as const

/** A bulk action that is running. */
const operation: OperationDetail = {
  ID: 'op',
  Action: 'resume',
  Process: PROCESS,
  Filter: { status: 'Failed' },
  IdCount: 300,
  FromStep: null,
  PerSecond: 1,
  Reason: 'the target is fixed',
  DryRun: false,
  Status: 'Running',
  StatusReason: null,
  KeyID: 'console',
  Person: 'ada',
  CreatedAt: new Date().toISOString(),
  UpdatedAt: new Date().toISOString(),
  FinishedAt: null,
  Done: 120,
  Skipped: 0,
  Failed: 0,
  FailedByCode: {},
  Failures: [],
  Matches: [],
}

describe('the live state of the pages of the console', () => {
  let at: FakeConsole

  beforeAll(async () => {
    at = await startFakeConsole()
    at.fake.add(Array.from({ length: RUNS }, (_, index) => `run-${index}`))
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const page of at.context.pages()) await page.close()
    expect(at.problems).toEqual([])
  })

  async function openList(): Promise<Page> {
    const page = await at.signIn()
    await page.goto(`${at.url}/runs`)
    await page.getByRole('link', { name: `run-${RUNS - 1}`, exact: true }).waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    return page
  }
  /** Returns the id and the status in each row of the list. */
  const rows = (page: Page) =>
    page.evaluate<readonly (readonly [string, string])[]>(
      `[...document.querySelectorAll('main tbody tr')].flatMap((row) => {
        const link = row.querySelector('td:nth-child(3) a')
        return link === null ? [] : [[link.textContent, row.querySelector('.state span:last-child').textContent]]
      })`,
    )
  async function expectAgreement(page: Page): Promise<void> {
    await eventually(
      async () => {
        const shown = await rows(page)
        expect(shown.length).toBeGreaterThan(5)
        const status = new Map(at.fake.runs.map((run) => [run.id, run.status]))
        expect(shown).toEqual(shown.map(([id]) => [id, status.get(id)]))
      },
      { everyMs: 100 },
    )
  }
  /** Changes every run four times in quick succession. The final status of a run depends on its index and on `salt`. */
  function burst(salt: number): void {
    for (let round = 0; round < 4; round += 1)
      at.fake.change(
        at.fake.runs.map((run, index) => [
          run,
          STATUSES[(index + round + salt) % STATUSES.length] ?? 'Queued',
        ]),
      )
  }

  it('after a burst of transitions every visible row agrees with the coordinator', async () => {
    const page = await openList()
    burst(0)
    await expectAgreement(page)
    await page.mouse.wheel(0, 6_000)
    burst(1)
    await expectAgreement(page)
  })

  it('a response that arrives after a newer event of the stream does not replace the state of the event', async () => {
    await using fresh = await startFakeConsole()
    fresh.fake.add(['only'], { Status: 'Running' })
    const first = await fresh.signIn()
    await first.close()
    const held = Promise.withResolvers<void>()
    let responses = 0
    await fresh.context.route('**/api/now', async (route) => {
      const headers = { ...route.request().headers(), Origin: fresh.url }
      const response = await route.fetch({ headers })
      expect(response.status()).toBe(200)
      await held.promise
      await route.fulfill({ response })
      responses += 1
    })
    const page = await fresh.open(fresh.url)
    await page.getByText('live', { exact: true }).waitFor()
    fresh.fake.change([[fresh.fake.runs[0] as FakeRun, 'Failed']])
    const failed = page.getByRole('heading', { name: `1 run failed at ${PROCESS}.order` })
    await failed.waitFor()
    held.resolve()
    await eventually(() => expect(responses).toBeGreaterThan(0))
    // The page has processed the response when it has drawn twice.
    await page.evaluate(
      'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
    )
    expect(await failed.count()).toBe(1)
    expect(fresh.problems).toEqual([])
  })

  it('after a burst of transitions, the pages Now, Runs and Processes show the same numbers of runs', async () => {
    const now = await at.signIn()
    const runs = await at.open(`${at.url}/runs`)
    const processes = await at.open(`${at.url}/processes`)
    await processes.getByRole('link', { name: /in flight$/ }).waitFor()
    burst(2)
    const countOf = (...statuses: readonly string[]): number =>
      at.fake.runs.filter(({ status }) => statuses.includes(status)).length
    const [inFlight, failed] = [countOf('Queued', 'Running', 'Retrying'), countOf('Failed')]
    const numbers = now.locator('.numbers')
    // Before the last event has arrived, one of the two numbers may happen to be right already.
    const expected = [`In flight${inFlight}`, `Failed${failed}`]
    const shown = async () => {
      const text = (await numbers.textContent()) ?? ''
      return expected.filter((part) => text.includes(part))
    }
    await expect.poll(shown).toEqual(expected)
    for (const [page, ...names] of [
      [runs, `In flight ${inFlight}`, `Failed ${failed}`],
      [processes, `${inFlight} in flight`, `${failed} failed`],
    ] as const)
      for (const name of names)
        await expect.poll(() => page.getByRole('link', { name, exact: true }).count()).toBe(1)
  })

  it('the pages show the current status of a run that changed during each of twenty interruptions of the event stream, and no row twice', async () => {
    await using fresh = await startFakeConsole()
    // The clock of the pages is moved, because a page pauses for two seconds between two reads.
    await fresh.context.clock.install()
    fresh.fake.add(['first', 'second'])
    const page = await fresh.signIn()
    await page.goto(`${fresh.url}/runs`)
    const run = fresh.fake.runs[1] as FakeRun
    const other = await fresh.open(`${fresh.url}/runs/${PROCESS}/${run.id}`)
    const shown = other.getByRole('region', { name: 'State' }).locator('.headline .state')
    for (let cut = 0; cut < 20; cut += 1) {
      fresh.fake.change([[run, 'Running']])
      fresh.fake.cutStreams(cut % 2 === 1)
      // Nothing happens after this change, so no later event can correct the pages.
      const status = STATUSES[cut % STATUSES.length] ?? 'Queued'
      fresh.fake.change([[run, status]])
      await soon(fresh.context, async () => {
        expect(await shown.textContent({ timeout: 1_000 })).toContain(status)
        expect(await rows(page)).toEqual([
          ['second', status],
          ['first', 'Completed'],
        ])
      })
    }
    expect(fresh.problems).toEqual([])
  })

  it('the pages show the current status of a run that changed without an event, if the console has forgotten the past of the stream', async () => {
    const page = await openList()
    const run = at.fake.runs.at(-1) as FakeRun
    const other = await at.open(`${at.url}/runs/${PROCESS}/${run.id}`)
    const shown = other.getByRole('region', { name: 'State' }).locator('.headline .state')
    const status = run.status === 'Cancelled' ? 'Waiting' : 'Cancelled'
    await shown.waitFor()
    await at.context.setOffline(true)
    await page.getByText('no connection').first().waitFor()
    run.status = status
    let resets = 0
    await at.context.route('**/api/stream*', (route) => {
      resets += 1
      return resets > 1
        ? route.continue()
        : route.fulfill({ contentType: 'text/event-stream', body: 'event: reset\ndata: {}\n\n' })
    })
    await at.context.setOffline(false)
    await shown.getByText(status).waitFor({ timeout: SOON_MS })
    await expect
      .poll(async () => (await rows(page))[0], { timeout: SOON_MS })
      .toEqual([run.id, status])
    await at.context.unroute('**/api/stream*')
  })

  it('the console reads everything again if the coordinator ends an event stream before its first event', async () => {
    await using fresh = await startFakeConsole()
    fresh.fake.add(['only'])
    const page = await fresh.signIn()
    await page.goto(`${fresh.url}/runs/${PROCESS}/only`)
    const state = page.getByRole('region', { name: 'State' })
    await state.getByText('Completed', { exact: true }).waitFor()
    await eventually(() => expect(fresh.fake.streams).toBe(1))
    fresh.fake.cutStreams()
    await eventually(() => expect(fresh.fake.streams).toBe(0))
    fresh.fake.change([[fresh.fake.runs[0] as FakeRun, 'Failed']])
    await eventually(() => expect(fresh.fake.streams).toBe(1))
    await state.getByText('Failed', { exact: true }).waitFor({ timeout: SOON_MS })
  })

  it('the page of a run with 5,000 attempts loads only the newest attempts, and a large body only on request', async () => {
    at.fake.add(['large'], largeRun)
    const page = await at.signIn()
    const requests: string[] = []
    page.on('request', (request) => requests.push(new URL(request.url()).pathname))
    const path = `/runs/${PROCESS}/large`
    const response = page.waitForResponse((one) => new URL(one.url()).pathname === `/api${path}`)
    await page.goto(at.url + path)
    expect((await (await response).body()).length).toBeLessThan(100_000)
    await page.getByText('The newest 200 of 5000 attempts.').waitFor()
    expect(await page.locator('main *').count()).toBeLessThan(5_000)
    expect(requests).not.toContain(`/api${path}/data`)
    await page.getByRole('button', { name: 'Show data' }).click()
    await page.getByRole('button', { name: 'Show all' }).waitFor()
    const body = page.getByText('xxxxxxxxxx')
    expect(await body.textContent()).toHaveLength(65_536)
    expect(requests.filter((one) => one === `/api${path}/data`)).toHaveLength(1)
    await page.getByRole('button', { name: 'Show all' }).click()
    await expect.poll(async () => (await body.textContent())?.length).toBe(1_000_000)
    await page.getByRole('link', { name: /^Attempts/ }).click()
    expect(new URL(page.url()).hash).toBe('#attempts')
  })

  describe.each([
    ['ahead', 3_600_000],
    ['behind', -3_600_000],
  ])('if the clock of the browser is an hour %s', (name, offsetMs) => {
    /** Signs in, and opens a page whose clock is wrong. */
    async function openWithWrongClock(path: string): Promise<Page> {
      const page = await at.signIn()
      await page.addInitScript(
        `{ const real = Date; globalThis.Date = class extends real {
        constructor(...values) { super(...(values.length === 0 ? [real.now() + ${offsetMs}] : values)) }
        static now() { return real.now() + ${offsetMs} }
      } }`,
      )
      await page.goto(at.url + path)
      expect(Math.abs((await page.evaluate<number>('Date.now()')) - Date.now())).toBeGreaterThan(
        3_000_000,
      )
      return page
    }

    it('countdowns follow the clock of the server', async () => {
      const due = Date.now() + 600_000
      at.fake.add([`due-${name}`], {
        Status: 'Retrying',
        NextAttemptAt: new Date(due).toISOString(),
      })
      const page = await openWithWrongClock(`/runs/${PROCESS}/due-${name}`)
      await eventually(async () => {
        // The estimate of the server's clock is wrong by at most half the duration of a request. If the requests of the
        // page were slow, a reload makes a new estimate.
        await page.reload()
        const text = (await page.getByText('next attempt in').textContent({ timeout: 2_000 })) ?? ''
        const remaining = (due - Date.now()) / 1_000
        const [, minutes, seconds] = /in (\d+):(\d\d)$/.exec(text) ?? []
        expect(Math.abs(Number(minutes) * 60 + Number(seconds) - remaining)).toBeLessThan(1.5)
      })
    })

    it('the filter by the time of the last change uses the clock of the server', async () => {
      const page = await openWithWrongClock('/runs')
      await page.getByLabel('Changed within').selectOption('last hour')
      await page.waitForURL(/since=/)
      const since = new URL(page.url()).searchParams.get('since') ?? ''
      expect(Math.abs(Date.parse(since) - (Date.now() - 3_600_000))).toBeLessThan(60_000)
    })
  })
})

describe('an open page of a console process that is killed', () => {
  it('after a restart of the console, an open page requests a sign-in and then shows the same URL, bulk action and theme', async () => {
    await using opened = new AsyncDisposableStack()
    const fake = opened.use(await startFakeInstallation())
    const browser = await launchChromium()
    opened.defer(() => browser.close())
    fake.add(['before'], { Status: 'Failed' })
    fake.operations.push(operation)
    const users = await usersFile(opened, { ada: 'operator' })
    const port = await freePort()
    const start = async (): Promise<ConsoleProcess> =>
      opened.use(await startConsoleProcess(fake.url, users, port))
    const first = await start()
    const origin = `http://127.0.0.1:${port}`
    const address = `${origin}/runs?status=Failed&idPrefix=be`
    const watched = await watchedContext(browser, origin)
    const page = await watched.open(address)
    await signInAs(page, 'ada')
    await page.getByRole('link', { name: 'before', exact: true }).waitFor()
    await page.getByText('live', { exact: true }).waitFor()
    const bulk = await watched.open(`${origin}/bulk/${operation.ID}`)
    const done = bulk.getByRole('region', { name: 'Progress' }).getByText('120', { exact: true })
    await done.waitFor()
    const ofRun = `${origin}/runs/${PROCESS}/before?run=0#attempts`
    const run = await watched.open(ofRun)
    await run.getByRole('region', { name: 'State' }).waitFor()
    const settings = await watched.open(`${origin}/settings`)
    await settings.getByLabel('Dark').check()
    await settings.close()
    await first.kill()
    await page.getByText('no connection').first().waitFor()
    await page.getByRole('link', { name: 'before', exact: true }).waitFor()
    await start()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await signInAs(page, 'ada')
    await page.getByRole('link', { name: 'before', exact: true }).waitFor()
    expect(page.url()).toBe(address)
    await run.getByRole('heading', { name: 'Sign in' }).waitFor()
    await signInAs(run, 'ada')
    await run.getByRole('region', { name: 'State' }).waitFor()
    expect(run.url()).toBe(ofRun)
    await bulk.reload()
    await done.waitFor()
    expect(await bulk.evaluate('document.documentElement.dataset.theme')).toBe('dark')
    expect(watched.problems).toEqual([])
    for (const secret of [...Object.values(KEYS), PASSWORD])
      expect((await watched.bodies()).join()).not.toContain(secret)
  })
})
