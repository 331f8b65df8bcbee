/**
 * Compares the pages of the console with stored pictures. The responses of the console's API are recorded, and the
 * clock of the browser is fixed, so that only a change of the page itself changes a picture. Other browser versions and
 * other fonts draw text differently. Therefore the pictures are compared only with the browser and the font with which
 * they were made.
 *
 * The comparison runs with `LOOKS=compare`. After an intended change, `LOOKS=draw` draws the pictures again;
 * `LOOKS=record` also makes a new recording, which is necessary after a change of the API.
 *
 *   LOOKS=draw npm run test:console -- tests/console/looks.test.ts
 */
import { execFileSync } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { eventually } from '@integration-host/shared/test-support/eventually'
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
  type Request,
} from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { builtConsole } from '../../host/test-support/built-console.ts'
import { chromiumProgram } from '../support/backends/server-binaries.ts'
import type { ConsoleBrowser } from './console-browser.ts'
import { BROKEN_COMPANY, FAILED_RUN, startPictureInstallation } from './picture-installation.ts'

const FOLDER = join(import.meta.dirname, 'looks')
const DIFFERENT = join(tmpdir(), 'console-looks')
const task = process.env['LOOKS']
const isRecording = task === 'record'
const isDrawing = isRecording || task === 'draw'
/** The share of pixels (0 to 1) by which a picture may differ from the stored picture. */
const TOLERANCE = 0.001
/** The longest time that a recording may take. */
const RECORDING_MS = 400_000
/** No server listens at this URL. The test itself responds to the requests of the browser. */
const ORIGIN = 'http://127.0.0.1:7221'

const pages: Readonly<Record<string, string>> = {
  now: '/',
  runs: '/runs',
  run: `/runs/InvoiceProcess/${FAILED_RUN}`,
  companies: '/companies',
  company: `/companies/${BROKEN_COMPANY.realm}`,
  processes: '/processes',
  process: '/processes/InvoiceProcess',
  services: '/services',
  limits: '/limits',
  charts: '/charts',
  activity: '/activity',
  sandbox: '/sandbox',
  settings: '/settings',
}
const forms = [
  { theme: 'light', width: 1280 },
  { theme: 'dark', width: 400 },
] as const

interface Recording {
  /** The versions of the browser and of the font with which the pictures were made. */
  readonly drawnBy: string
  /** The time that the clock of the browser shows in the pictures, in epoch milliseconds. */
  readonly at: number
  /** The responses of the API by path and query. */
  readonly responses: Readonly<Record<string, { readonly status: number; readonly body: string }>>
}

/** A browser script that resolves after two animation frames, when the effects of the current frame have been drawn. */
const TWO_FRAMES =
  'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve())))'

/**
 * Whether the URL belongs to a request to the API whose response ends. The response of the event stream never ends, so
 * it is not recorded.
 */
const isRead = ({ pathname }: URL): boolean =>
  pathname.startsWith('/api/') && pathname !== '/api/stream'

const executablePath = process.env['CONSOLE_TEST_BROWSER'] ?? (await chromiumProgram())
const output = (program: string, ...args: string[]): string =>
  execFileSync(program, args, { encoding: 'utf8' }).trim()
const drawnBy = (): string =>
  [
    output(executablePath ?? 'chromium', '--version'),
    output('fc-match', '--format=%{family} %{fontversion}', 'system-ui'),
  ].join(', ')
const stored: Recording | null = isRecording
  ? null
  : (JSON.parse(await readFile(join(FOLDER, 'recording.json'), 'utf8')) as Recording)
const isComparable = isDrawing || (task === 'compare' && stored?.drawnBy === drawnBy())
if (task === 'compare' && !isComparable)
  console.warn(
    `SKIPPED: the pictures of the console, which were drawn by ${stored?.drawnBy}, not ${drawnBy()}`,
  )

describe.runIf(isComparable)('the pages of the console compared with stored pictures', () => {
  let installation: ConsoleBrowser | null = null
  let browser: Browser
  let context: BrowserContext
  let recording: Recording

  beforeAll(async () => {
    recording = { ...(stored ?? (await record())), ...(isDrawing && { drawnBy: drawnBy() }) }
    if (isDrawing) await writeRecording(recording)
    browser = await chromium.launch({
      ...(executablePath !== null && { executablePath }),
      args: ['--no-sandbox'],
    })
    context = await browser.newContext({ locale: 'en-GB', timezoneId: 'UTC' })
    await serve(context, recording)
  }, RECORDING_MS)
  afterEach(async () => {
    for (const page of context.pages()) await page.close()
  })
  afterAll(async () => {
    await browser?.close()
    await installation?.[Symbol.asyncDispose]()
  })

  /** Opens all pages of a running installation, and records the responses of the console's API. */
  async function record(): Promise<Recording> {
    installation = await startPictureInstallation()
    const { context: recorded } = installation
    const first = await installation.signIn()
    await first.getByText('1 run failed at InvoiceProcess.notice').waitFor({ timeout: 60_000 })
    await first.close()
    const at = Date.now()
    const responses: Record<string, { status: number; body: string }> = {}
    const bodies: Promise<unknown>[] = []
    recorded.on('response', (response) => {
      const url = new URL(response.url())
      if (!isRead(url)) return
      const status = response.status()
      bodies.push(
        response.text().then((body) => (responses[url.pathname + url.search] = { status, body })),
      )
    })
    for (const path of Object.values(pages)) {
      const page = await recorded.newPage()
      await page.clock.setFixedTime(at)
      await show(page, installation.console.url + path)
      await Promise.all(bodies)
      await page.close()
    }
    const sorted = Object.fromEntries(
      Object.entries(responses).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    )
    return { drawnBy: drawnBy(), at, responses: sorted }
  }

  it.each(
    Object.entries(pages).flatMap(([name, path]) =>
      forms.map(({ theme, width }) => ({ name, path, theme, width })),
    ),
  )(
    'the page $name equals its stored picture in the $theme theme at a width of $width pixels',
    async (picture) => {
      const { name, path, theme, width } = picture
      const page = await context.newPage()
      await page.setViewportSize({ width, height: 900 })
      await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
      await page.clock.setFixedTime(recording.at)
      await show(page, ORIGIN + path)
      const drawn = await page.screenshot({ animations: 'disabled' })
      const file = `${name}-${theme}.png`
      if (isDrawing) await writeFile(join(FOLDER, file), drawn)
      else {
        const share = await differingShare(page, drawn, await readFile(join(FOLDER, file)))
        if (share > TOLERANCE) {
          await mkdir(DIFFERENT, { recursive: true })
          await writeFile(join(DIFFERENT, file), drawn)
        }
        expect(
          share,
          `compare ${join(FOLDER, file)} with ${join(DIFFERENT, file)}`,
        ).toBeLessThanOrEqual(TOLERANCE)
      }
    },
  )
})

/** Opens a URL. Resolves when the page has received all responses and has been drawn. */
async function show(page: Page, url: string): Promise<void> {
  let pending = 0
  page.on('request', (request) => {
    if (isRead(new URL(request.url()))) pending += 1
  })
  const ended = (request: Request): void => {
    if (isRead(new URL(request.url()))) pending -= 1
  }
  page.on('requestfinished', ended)
  page.on('requestfailed', ended)
  await page.goto(url)
  await page.getByRole('heading', { level: 1 }).waitFor()
  await eventually(async () => {
    expect(pending).toBe(0)
    await page.evaluate(TWO_FRAMES)
    expect(pending).toBe(0)
    // React may draw the responses later than two frames after their arrival.
    const waiting = page.getByText(/ (is|are) being (read|loaded)\.$/)
    // A closed menu has such a text, too.
    expect(await waiting.filter({ visible: true }).count()).toBe(0)
  })
}

async function writeRecording(recording: Recording): Promise<void> {
  await mkdir(FOLDER, { recursive: true })
  await writeFile(join(FOLDER, 'recording.json'), `${JSON.stringify(recording, null, 2)}\n`)
}

/**
 * Responds to the requests of the browser with the bundled browser program of the console and with the recorded
 * responses.
 */
async function serve(context: BrowserContext, { responses, at }: Recording): Promise<void> {
  const app = await builtConsole()
  const assets = new Map(app.assets.map((asset) => [asset.path, asset]))
  await context.route(`${ORIGIN}/**`, async (route) => {
    const { pathname, search } = new URL(route.request().url())
    if (pathname.startsWith('/api/')) {
      const { status, body } = responses[pathname + search] ?? { status: 404, body: '{}' }
      await route.fulfill({ status, body, contentType: 'application/json' })
    } else {
      const { body, type } = assets.get(pathname) ?? app.shell
      await route.fulfill({ body: Buffer.from(body), contentType: type })
    }
  })
  // This fake event stream opens, sends its first event, and then sends no further event.
  await context.addInitScript(`
    globalThis.EventSource = class {
      addEventListener(name, listener) {
        if (name === 'open') queueMicrotask(listener)
        if (name === 'hello')
          queueMicrotask(() => listener({ lastEventId: '', data: '{"Now":"${new Date(at).toISOString()}"}' }))
      }
      close() {}
    }`)
}

/** Returns the share of the pixels that differ between two pictures, from 0 to 1. The browser decodes the pictures. */
async function differingShare(page: Page, drawn: Buffer, expected: Buffer): Promise<number> {
  const urls = [drawn, expected].map((png) => `data:image/png;base64,${png.toString('base64')}`)
  return await page.evaluate<number>(`(async () => {
    const pixels = await Promise.all(${JSON.stringify(urls)}.map(async (url) => {
      const image = new Image()
      image.src = url
      await image.decode()
      const { width, height } = image
      const canvas = Object.assign(document.createElement('canvas'), { width, height })
      const drawing = canvas.getContext('2d')
      drawing.drawImage(image, 0, 0)
      return { width, height, data: new Uint32Array(drawing.getImageData(0, 0, width, height).data.buffer) }
    }))
    const [a, b] = pixels
    if (a.width !== b.width || a.height !== b.height) return 1
    let differing = 0
    for (let index = 0; index < a.data.length; index += 1) if (a.data[index] !== b.data[index]) differing += 1
    return differing / a.data.length
  })()`)
}
