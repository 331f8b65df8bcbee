/** Tests in a browser that no page needs horizontal scrolling, however wide its window is. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { signInAs } from './users.ts'

const LONG_NAME = 'ada.augusta.king-noel.countess-of-lovelace@example.com'
const WIDTHS = [320, 360, 400, 480, 560, 620, 640, 700, 760, 770, 840, 898, 900, 1_000, 1_200]

/** Before it gets this event, the page has the form of a wide window. */
const WITHOUT_CHANGES = `
  const real = window.matchMedia.bind(window)
  window.matchMedia = (query) =>
    query.includes('max-width') ? { matches: false, addEventListener() {}, removeEventListener() {} } : real(query)
`

describe('the width of a page', () => {
  let at: FakeConsole
  beforeAll(async () => {
    at = await startFakeConsole({ SIGN_IN: 'link,password' }, { [LONG_NAME]: 'operator' })
    at.fake.add(['kept'], { Status: 'Failed', Realm: '1' })
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  const excessesOf = async (page: Page): Promise<readonly string[]> => {
    const found: string[] = []
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 900 })
      const excess = await page.evaluate(
        'document.documentElement.scrollWidth - document.documentElement.clientWidth',
      )
      if (excess !== 0) found.push(`${width}: ${String(excess)}`)
    }
    return found
  }

  it('the bar fits with a short name and with a long one, which the menu shows whole', async () => {
    const page = await at.signIn()
    await page.getByRole('status').getByText('live', { exact: true }).waitFor()
    expect(await excessesOf(page)).toEqual([])
    await page.context().clearCookies()
    await page.goto(at.url)
    await signInAs(page, LONG_NAME)
    await page.getByRole('status').getByText('live', { exact: true }).waitFor()
    expect(await excessesOf(page)).toEqual([])
    await page.getByRole('button', { name: LONG_NAME }).click()
    await page.getByText(`Signed in as ${LONG_NAME}, operator`).waitFor()
    await page.close()
  })

  it('the list of runs fits also while it still has columns in a window that has become narrow', async () => {
    const page = await at.signIn()
    await page.addInitScript(WITHOUT_CHANGES)
    await page.goto(`${at.url}/runs`)
    await page.getByRole('columnheader', { name: 'Why and where' }).waitFor()
    await page.getByRole('link', { name: 'kept', exact: true }).waitFor()
    expect(await excessesOf(page)).toEqual([])
    await page.close()
  })
})
