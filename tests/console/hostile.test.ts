/**
 * Tests that no page of the console interprets a text from outside as markup, code or a URL, and that no text looks
 * like another text. Every field of every page contains every hostile text (hostile-texts.ts).
 */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'
import { ALL, fill, LOADED } from './hostile-installation.ts'
import { HOSTILE_IDS, HOSTILE_TEXTS } from './hostile-texts.ts'

/**
 * Matches the ids of the runs on which the test performs an action: ids with markup, hidden characters or paths, and a
 * long id.
 */
const ACTED_ON = /^(?:<svg|\u202e|66\u200b|⟨|😀|x{9}|\.\.|a\/b|%2e|__|\?)/u

/**
 * A browser script that returns everything in the page that must not be there, such as elements and attributes from a
 * hostile text.
 */
const FINDINGS = String.raw`(() => {
  const app = document.getElementById('app')
  const elements = [...app.querySelectorAll('*')]
  const active = 'script,img,iframe,object,embed,style,link,base,meta,audio,video,template,b'
  const hidden = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u3164]/u
  const found = []
  for (const element of elements) {
    if (element.matches(active)) found.push('element ' + element.outerHTML)
    for (const { name, value } of element.attributes) {
      if (/^on|^srcdoc$/.test(name)) found.push('attribute ' + name)
      if (name === 'style' && /url|fixed/.test(value)) found.push('style ' + value)
      if (/^(?:title|aria-label|alt|placeholder)$/.test(name) && hidden.test(value))
        found.push('hidden character in ' + name + ' ' + value)
      if (/^(?:href|src|action|formaction|xlink:href)$/.test(name)) {
        const url = new URL(value, location.href)
        if (url.origin !== location.origin) found.push(name + ' ' + value)
      }
    }
  }
  const walker = document.createTreeWalker(app, NodeFilter.SHOW_TEXT)
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const text = node.data
    if (hidden.test(node.parentElement.closest('pre') ? text.replaceAll(/[\n\t]/g, '') : text))
      found.push('hidden character in ' + text)
    if (/⟨U\+|שלום/.test(text) && node.parentElement.closest('bdi,option,title') === null)
      found.push('not isolated: ' + text)
  }
  if (hidden.test(document.title)) found.push('hidden character in the title')
  if (location.origin !== origin) found.push('left for ' + location.href)
  return [...new Set(found)]
})()`

/**
 * The paths of the tested pages. `ready` is a text that is visible when the page is complete, and `prepare` opens
 * further parts of the page.
 */
const PAGES: readonly {
  readonly path: string
  readonly ready: string
  /** Whether the page shows each text separately somewhere, and not only within a sentence. */
  readonly hasAll?: boolean
  readonly prepare?: (page: Page) => Promise<void>
}[] = [
  { path: '/', ready: 'What changed' },
  { path: '/services', ready: 'coordinator', hasAll: true },
  {
    path: `/runs/${PROCESS}/${LOADED}`,
    ready: 'Actions on this run',
    hasAll: true,
    async prepare(page) {
      await page.getByRole('button', { name: 'Show data' }).click()
      await page.getByText('Initial data', { exact: true }).waitFor()
    },
  },
  { path: '/companies', ready: 'Access token', hasAll: true },
  { path: '/companies/0', ready: 'History' },
  { path: '/activity', ready: 'Sign-ins are listed', hasAll: true },
  { path: '/processes', ready: 'Started by' },
  { path: `/processes/${PROCESS}`, ready: 'Schedules', hasAll: true },
  {
    path: `/dead-letters/${PROCESS}`,
    ready: 'Dead letters of',
    hasAll: true,
    async prepare(page) {
      await page.locator('summary').first().waitFor()
      await page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    },
  },
  { path: '/limits', ready: 'Failed lately', hasAll: true },
  { path: '/limits/0', ready: 'Failed calls' },
  { path: '/bulk/op', ready: 'It has paused because' },
  ...['runs', 'activity', 'companies', 'charts'].map((name) => ({
    path: `/${name}?${new URLSearchParams([
      ...HOSTILE_IDS.map(({ text }) => ['class', text]),
      ...['step', 'realm', 'idPrefix', 'process', 'q', 'person', 'id', 'kind', 'range'].map(
        (parameter) => [parameter, ALL],
      ),
    ] as [string, string][]).toString()}`,
    ready: name === 'charts' ? 'Charts' : 'Filter',
  })),
  ...['/runs/x/', '/companies/', '/limits/', '/bulk/', '/dead-letters/'].map((folder) => ({
    path: folder + encodeURIComponent(ALL.toWellFormed()),
    ready: 'Now',
  })),
]

describe('hostile texts on the pages of the console', () => {
  let at: FakeConsole

  beforeAll(async () => {
    at = await startFakeConsole()
    fill(at.fake)
    await at.context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: at.url })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(async () => {
    for (const page of at.context.pages()) await page.close()
    expect(at.problems).toEqual([])
  })

  /**
   * Returns the elements, attributes and URLs that come from a hostile text, and the invisible characters in the page.
   */
  const findings = (page: Page) => page.evaluate<string[]>(FINDINGS)
  const expectHarmless = async (page: Page): Promise<void> =>
    expect(await findings(page), page.url()).toEqual([])
  /** Returns the texts that the page shows in `bdi` elements, which isolate their text direction. */
  const isolated = (page: Page) =>
    page.evaluate<string[]>("[...document.querySelectorAll('bdi')].map((one) => one.textContent)")
  /** Returns the hostile texts that the page does not show. */
  async function hidden(page: Page): Promise<readonly string[]> {
    const shown = new Set(await isolated(page))
    return HOSTILE_TEXTS.map((one) => one.shown).filter((text) => !shown.has(text))
  }

  it('no page of the console interprets a text from outside as markup, code or a URL', async () => {
    const page = await at.signIn()
    const harmful: Record<string, readonly string[]> = {}
    for (const { path, ready, hasAll = false, prepare } of PAGES) {
      await page.goto(at.url + path)
      await page.getByText(ready).filter({ visible: true }).first().waitFor()
      await prepare?.(page)
      if (hasAll) await expect.poll(() => hidden(page), { message: path }).toEqual([])
      const found = await findings(page)
      if (found.length > 0) harmful[path] = found
    }
    expect(harmful).toEqual({})
  })

  it('the page Runs and the search show ids with markup, paths or hidden characters as text', async () => {
    const page = await at.signIn()
    await page.setViewportSize({ width: 1280, height: 3_000 })
    await page.goto(`${at.url}/runs`)
    await page.getByRole('link', { name: LOADED, exact: true }).waitFor()
    expect(await isolated(page)).toEqual(
      expect.arrayContaining(HOSTILE_IDS.map(({ shown }) => shown)),
    )
    const links = await page.evaluate<string[]>(
      "[...document.querySelectorAll('td:nth-child(3) a')].map((one) => one.getAttribute('href'))",
    )
    expect(links.map((link) => decodeURIComponent(link.split('/')[3] ?? ''))).toEqual([
      `${LOADED}?run=0`,
      ...HOSTILE_IDS.map(({ text }) => `${text}?run=0`).toReversed(),
    ])
    await page.getByLabel('Select all runs that are loaded').click()
    await page.getByText(`${HOSTILE_IDS.length + 1} runs are selected`).waitFor()
    await expectHarmless(page)
    await page.keyboard.press('Control+k')
    for (const text of ['<', '\u202e', '../', '%', '__']) {
      await page.getByRole('combobox', { name: 'Search' }).fill(text)
      await page.getByRole('group', { name: 'Runs' }).getByRole('option').first().waitFor()
      await expectHarmless(page)
    }
  })

  it('a run whose id has markup, paths or hidden characters can be opened, copied and cancelled', async () => {
    const page = await at.signIn()
    await page.setViewportSize({ width: 1280, height: 3_000 })
    await page.goto(`${at.url}/runs`)
    await page.getByRole('link', { name: LOADED, exact: true }).waitFor()
    for (const { text, shown } of HOSTILE_IDS.filter(({ text: id }) => ACTED_ON.test(id))) {
      await page
        .locator('td:nth-child(3) a', { has: page.getByText(shown, { exact: true }) })
        .click()
      await page.getByRole('heading', { level: 1 }).getByText(shown, { exact: true }).waitFor()
      await page.getByRole('button', { name: /^More about run/ }).click()
      await page.getByRole('button', { name: 'Copy the id' }).click()
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe(text)
      await page.getByRole('button', { name: /^More about run/ }).click()
      await page.getByRole('button', { name: 'Copy a link' }).click()
      await expect
        .poll(() => page.evaluate<string>('navigator.clipboard.readText()'))
        .toMatch(/^http/)
      await page.goto(await page.evaluate<string>('navigator.clipboard.readText()'))
      await page.getByRole('heading', { level: 1 }).getByText(shown, { exact: true }).waitFor()
      await page.getByRole('button', { name: 'Cancel run…' }).click()
      const dialog = page.getByRole('dialog')
      expect(await dialog.getByRole('heading').textContent()).toContain(`run 0 of ${shown}`)
      // The console rejects a reason with invisible characters.
      const reason = `because of ${shown}`
      await dialog.getByLabel('Reason').fill(reason)
      await dialog.getByRole('button', { name: 'Cancel run', exact: true }).click()
      await dialog.waitFor({ state: 'detached' })
      await expectHarmless(page)
      const { path, body } = at.fake.acted.at(-1) ?? { path: '', body: null }
      expect(path.split('/').map(decodeURIComponent).slice(3)).toEqual([
        'transactions',
        text,
        'cancel',
      ])
      expect(body).toEqual({ Reason: reason })
      await page.goto(`${at.url}/runs`)
    }
  })

  it('the dialog of a rejected action shows the error message of the service as text', async () => {
    const page = await at.signIn()
    await page.goto(`${at.url}/runs/${PROCESS}/${LOADED}`)
    at.fake.reject = (method) =>
      method === 'POST' ? { code: 'transaction_active', detail: ALL } : null
    await page.getByRole('button', { name: 'Cancel run…' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel run', exact: true }).click()
    await page.getByRole('dialog').getByRole('alert').getByText('<svg/onload').waitFor()
    await expectHarmless(page)
    at.fake.reject = () => null
  })
})
