/**
 * Measures the web console under load, and compares the results with the limits of each part. A fake coordinator
 * serves 10,000 runs over HTTP, and then changes 1,000 of these runs a second while five browsers show them. Prints
 * each measured value next to its limit.
 *
 *   npm run bench -- console [--minutes 1] [--only start,paint,scroll,load,large,watching] [--rounds 30] [--orders 1000]
 *
 * The part `watching` measures how much a console slows down the coordinator. In each of `--rounds` rounds, the
 * coordinator runs `--orders` orders without a console and as many with a console. This part uses the PostgreSQL and
 * RabbitMQ on this machine's standard ports. The other parts need Chromium, on the path or in CONSOLE_TEST_BROWSER.
 * With the defaults the benchmark takes about five minutes.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { launchChromium } from '@integration-host/tests/chromium'
import {
  type FakeInstallation,
  type FakeRun,
  startFakeInstallation,
} from '@integration-host/tests/fake-installation'
import { largeRun } from '@integration-host/tests/large-run'
import { type ConsoleProcess, startConsoleProcess } from './console/console-process.ts'
import { measureWatching } from './console/watching.ts'
import { cpuSeconds, residentMb } from './support/process-usage.ts'
import { quantile } from './support/statistics.ts'

const { values: args } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    only: { type: 'string', default: 'start,paint,scroll,load,large,watching' },
    rounds: { type: 'string', default: '30' },
    orders: { type: 'string', default: '1000' },
  },
})
type Context = Awaited<ReturnType<Awaited<ReturnType<typeof launchChromium>>['newContext']>>
type Page = Awaited<ReturnType<Context['newPage']>>

const RUNS = 10_000
const PER_SECOND = 1_000
const BROWSERS = 5
const STATUSES = ['Queued', 'Running', 'Retrying', 'Failed', 'Completed'] as const
const MIB = 1_048_576

const measurements: Record<string, { readonly measured: string; readonly limit: string }> = {}
function report(name: string, measured: string, limit: string): void {
  measurements[name] = { measured, limit }
  console.log(`${name}: ${measured} (limit ${limit})`)
}
const ms = (value: number): string => `${value.toFixed(0)} ms`

const parts = args.only.split(',')

async function measureConsole(): Promise<void> {
  await using opened = new AsyncDisposableStack()
  const fake = opened.use(await startFakeInstallation())
  fake.add(Array.from({ length: RUNS }, (_, index) => `run-${index}`))
  const peers = { coordinator: fake.url, others: fake.url }
  await (await startConsoleProcess(peers))[Symbol.asyncDispose]() // fills the cache of compiled programs
  const watched = opened.use(await startConsoleProcess(peers))
  report('ready, with the bundling of a checkout', ms(watched.readyMs), '1500 ms')
  const browser = await launchChromium()
  opened.defer(() => browser.close())
  const signedIn = async (): Promise<{ readonly context: Context; readonly page: Page }> => {
    const context = await browser.newContext({ viewport: { width: 1_280, height: 900 } })
    const page = await context.newPage()
    await page.goto(await watched.signInLink())
    await page.getByRole('navigation').waitFor()
    return { context, page }
  }

  if (parts.includes('start')) await measureIdle(watched)
  if (parts.includes('paint')) {
    const { context } = await signedIn()
    await measurePaint(context, watched.url, 'on loopback', null, '1000 ms')
    const slow = { latency: 50, downloadThroughput: 1_250_000, uploadThroughput: 1_250_000 }
    await measurePaint(context, watched.url, 'with 50 ms and 10 Mbit/s', slow, '2000 ms')
    await context.close()
  }
  if (parts.includes('scroll')) {
    const { context, page } = await signedIn()
    await measureScrolling(page, watched.url)
    await context.close()
  }
  if (parts.includes('load')) {
    const pages: Page[] = []
    for (let index = 0; index < BROWSERS; index += 1) {
      const { page } = await signedIn()
      await page.goto(`${watched.url}/runs`)
      await page.getByRole('link', { name: `run-${RUNS - 1}`, exact: true }).waitFor()
      pages.push(page)
    }
    await measureLoad(pages, fake, watched, Number(args.minutes))
    for (const page of pages) await page.context().close()
  }
  if (parts.includes('large')) {
    const { context, page } = await signedIn()
    await measureLargeRun(page, fake, watched.url)
    fake.add(Array.from({ length: 90_000 }, (_, index) => `more-${index}`))
    await measureLongList(page, watched.url)
    await context.close()
  }
}

async function measureIdle({ pid }: ConsoleProcess): Promise<void> {
  await delay(5_000)
  const before = cpuSeconds(pid)
  await delay(10_000)
  report('console process, idle: memory', `${residentMb(pid).toFixed(0)} MB`, '120 MB')
  report('console process, idle: CPU', percent(cpuSeconds(pid) - before, 10), 'none')
}
const percent = (seconds: number, of: number): string => `${((seconds / of) * 100).toFixed(1)} %`

interface Network {
  readonly latency: number
  readonly downloadThroughput: number
  readonly uploadThroughput: number
}

/** Loads the page *Now* with an empty cache, five times. */
async function measurePaint(
  context: Context,
  url: string,
  name: string,
  network: Network | null,
  limit: string,
): Promise<void> {
  const paints: number[] = []
  let requests = 0
  for (let load = 0; load < 5; load += 1) {
    const page = await context.newPage()
    const cdp = await context.newCDPSession(page)
    await cdp.send('Network.enable')
    await cdp.send('Network.clearBrowserCache')
    if (network !== null)
      await cdp.send('Network.emulateNetworkConditions', { offline: false, ...network })
    let count = 0
    let shown = false
    page.on('request', (request) => {
      if (!shown && !request.url().startsWith('data:')) count += 1
    })
    await page.goto(url)
    await page.getByRole('heading', { name: /needs? you/i }).waitFor()
    shown = true
    requests = Math.max(requests, count)
    await delay(500)
    paints.push(
      await page.evaluate<number>(`new Promise((resolve) =>
        new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime))
          .observe({ type: 'largest-contentful-paint', buffered: true }))`),
    )
    await page.close()
  }
  report(`largest contentful paint, cold, ${name}`, ms(quantile(paints, 0.5)), limit)
  if (network === null)
    report('requests before the first page shows data', String(requests), '6 and the stream')
}

/** A browser script that starts to record long tasks, the durations of interactions, and the times between frames. */
const OBSERVE = `
  globalThis.longTasks = []
  globalThis.interactions = []
  globalThis.frameTimes = []
  new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((one) => one.duration)))
    .observe({ type: 'longtask' })
  new PerformanceObserver((list) =>
    interactions.push(...list.getEntries().filter((one) => one.interactionId > 0).map((one) => one.duration)))
    .observe({ type: 'event', durationThreshold: 16 })
  let last = performance.now()
  const frame = (now) => { frameTimes.push(now - last); last = now; requestAnimationFrame(frame) }
  requestAnimationFrame(frame)
  'observed'`

interface Observed {
  readonly longTasks: readonly number[]
  readonly interactions: readonly number[]
  readonly frames: readonly number[]
}
const observed = (page: Page): Promise<Observed> =>
  page.evaluate<Observed>('({ longTasks, interactions, frames: frameTimes.slice(1) })')

function reportFrames(name: string, { frames, longTasks }: Observed): void {
  report(`${name}: frames, p50`, ms(quantile(frames, 0.5)), '17 ms')
  report(`${name}: frames, p95`, ms(quantile(frames, 0.95)), '17 ms')
  report(`${name}: longest frame`, ms(Math.max(...frames)), '50 ms')
  report(`${name}: longest task over 50 ms`, ms(Math.max(0, ...longTasks)), '100 ms')
}

/** Loads the whole list by scrolling, and then scrolls by wheel and by keys. */
async function measureScrolling(page: Page, url: string): Promise<void> {
  await page.goto(`${url}/runs`)
  const last = page.getByRole('link', { name: 'run-0', exact: true })
  for (let press = 0; press < 1_000 && !(await last.isVisible()); press += 1) {
    await page.keyboard.press('End')
    await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))')
  }
  await page.evaluate('window.scrollTo(0, 0)')
  await delay(1_000)
  await page.evaluate(OBSERVE)
  await page.mouse.move(600, 500)
  for (let turn = 0; turn < 300; turn += 1) {
    await page.mouse.wheel(0, 400)
    await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))')
  }
  reportFrames('scrolling 10,000 runs by wheel', await observed(page))
  const rows = await page.getByRole('table', { name: 'Runs' }).locator('tr').count()
  report('rows in the page', String(rows), '60')
  await page.evaluate('window.scrollTo(0, 0)')
  await page.getByRole('link', { name: `run-${RUNS - 1}`, exact: true }).focus()
  await page.evaluate('longTasks.length = interactions.length = frameTimes.length = 0')
  for (let step = 0; step < 150; step += 1) await page.keyboard.press('j')
  const byKeys = await observed(page)
  reportFrames('moving through 10,000 runs by keys', byKeys)
  report(
    'moving by keys: interactions, p95',
    ms(quantile(byKeys.interactions, 0.95) || 0),
    '100 ms',
  )
}

async function heapMb(page: Page): Promise<number> {
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('HeapProfiler.collectGarbage')
  const { usedSize } = await cdp.send('Runtime.getHeapUsage')
  await cdp.detach()
  return usedSize / MIB
}

/** Changes 1,000 runs a second. Meanwhile clicks the checkboxes of a list of runs in one browser, as a person would. */
async function measureLoad(
  pages: readonly Page[],
  fake: FakeInstallation,
  { pid }: ConsoleProcess,
  minutes: number,
): Promise<void> {
  const [page] = pages
  if (page === undefined) return
  await delay(3_000)
  const heapBefore = await heapMb(page)
  await page.evaluate(OBSERVE)
  const cpuBefore = cpuSeconds(pid)
  const listsBefore = fake.received.get('/transactions') ?? 0
  let most = 0
  const startedAt = performance.now()
  const isOver = (): boolean => performance.now() - startedAt > minutes * 60_000
  let sent = 0
  async function load(): Promise<void> {
    while (!isOver()) {
      const due = Math.floor(((performance.now() - startedAt) / 1_000) * PER_SECOND)
      const changes: (readonly [FakeRun, FakeRun['status']])[] = []
      for (; sent < due; sent += 1) {
        // Half of the changes affect the newest runs, which every browser shows.
        const index = sent % 2 === 0 ? RUNS - 1 - ((sent / 2) % 200) : (sent * 7) % RUNS
        const run = fake.runs[index]
        if (run !== undefined) changes.push([run, STATUSES[(sent + index) % 5] ?? 'Queued'])
      }
      if (changes.length > 0) fake.change(changes)
      most = Math.max(most, residentMb(pid))
      await delay(20)
    }
  }
  async function use(used: Page): Promise<void> {
    const boxes = used.locator('tbody input[type=checkbox]')
    for (let turn = 0; !isOver(); turn += 1) {
      await boxes.nth(turn % 5).click()
      await delay(400)
    }
  }
  await Promise.all([load(), use(page)])
  const seconds = (performance.now() - startedAt) / 1_000
  const cpu = cpuSeconds(pid) - cpuBefore
  const seen = await observed(page)
  const name = `${PER_SECOND} events/s for ${minutes} min`
  report(`${name}: events sent a second`, (sent / seconds).toFixed(0), '1000')
  report(`${name}: longest task over 50 ms`, ms(Math.max(0, ...seen.longTasks)), '100 ms')
  report(
    `${name}: tasks over 100 ms`,
    String(seen.longTasks.filter((one) => one > 100).length),
    '0',
  )
  report(`${name}: interactions, p95`, ms(quantile(seen.interactions, 0.95) || 0), '100 ms')
  report(`${name}: console CPU, ${BROWSERS} browsers`, percent(cpu, seconds), '15 %')
  report(`${name}: console memory, ${BROWSERS} browsers`, `${most.toFixed(0)} MB`, '200 MB')
  const lists = (fake.received.get('/transactions') ?? 0) - listsBefore
  report(
    `${name}: lists read from the coordinator`,
    `${(lists / seconds).toFixed(1)} a second`,
    'none',
  )
  report(`${name}: streams at the coordinator`, String(fake.streams), '1')
  await delay(5_000)
  const wrong = await page.evaluate<readonly (readonly [string, string])[]>(
    `[...document.querySelectorAll('main tbody tr')].flatMap((row) => {
      const link = row.querySelector('td:nth-child(3) a')
      return link === null ? [] : [[link.textContent, row.querySelector('.state span:last-child').textContent]]
    })`,
  )
  const status = new Map(fake.runs.map((run) => [run.id, run.status]))
  report(
    `${name}: visible rows that differ 5 s later`,
    `${wrong.filter(([id, shown]) => status.get(id) !== shown).length} of ${wrong.length}`,
    '0',
  )
  const growth = (await heapMb(page)) - heapBefore
  report(
    `${name}: heap growth after garbage collection`,
    `${growth.toFixed(1)} MB`,
    minutes < 10 ? '20 MB' : '10 MB',
  )
}

async function measureLargeRun(page: Page, fake: FakeInstallation, url: string): Promise<void> {
  fake.add(['large'], largeRun)
  await page.goto(`${url}/runs?idPrefix=large`)
  const link = page.getByRole('link', { name: 'large', exact: true })
  await link.waitFor()
  await page.evaluate(OBSERVE)
  const before = performance.now()
  await link.click()
  await page.getByText('The newest 200 of 5000 attempts.').waitFor()
  report('a run with 5,000 attempts opens', ms(performance.now() - before), '1000 ms')
  await page.getByRole('button', { name: 'Show data' }).click()
  await page.getByText('This is the beginning of the text.').waitFor()
  const { longTasks } = await observed(page)
  report(
    'a run with 5,000 attempts: longest task over 50 ms',
    ms(Math.max(0, ...longTasks)),
    '100 ms',
  )
}

async function measureLongList(page: Page, url: string): Promise<void> {
  const before = performance.now()
  await page.goto(`${url}/runs`)
  await page.getByRole('link', { name: 'more-89999', exact: true }).waitFor()
  report('a list of 100,000 runs opens', ms(performance.now() - before), 'none')
  await page.evaluate(OBSERVE)
  await page.mouse.move(600, 500)
  for (let turn = 0; turn < 200; turn += 1) {
    await page.mouse.wheel(0, 400)
    await page.evaluate('new Promise((resolve) => requestAnimationFrame(resolve))')
  }
  reportFrames('scrolling 100,000 runs by wheel', await observed(page))
}

if (parts.some((part) => part !== 'watching')) await measureConsole()
if (parts.includes('watching'))
  await measureWatching(Number(args.rounds), Number(args.orders), report)
console.table(measurements)
