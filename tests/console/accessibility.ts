/** Checks pages of the console with axe. */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'
import { expect } from 'vitest'

const WIDTHS = [1440, 900, 400] as const
/** The size of the viewport before and after the checks of a page. */
const USUAL_SIZE = { width: 1280, height: 720 } as const
/**
 * A screenshot contains the whole page if the height of the page is less than this number of pixels. Otherwise, the
 * screenshot contains only the visible part.
 */
const TALLEST_PICTURE = 3_000
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

/** The rules whose result depends on the theme. */
const COLOR_RULES = ['color-contrast', 'link-in-text-block']

/**
 * Loads axe into an isolated world of the browser, to which the page's Content-Security-Policy does not apply. Returns
 * a function that checks the page against the given rules or tags of rules, and returns the violated rules.
 */
async function loadAxe(
  page: Page,
): Promise<(rules: readonly string[]) => Promise<readonly string[]>> {
  const client = await page.context().newCDPSession(page)
  const { frameTree } = await client.send('Page.getFrameTree')
  const { executionContextId: contextId } = await client.send('Page.createIsolatedWorld', {
    frameId: frameTree.frame.id,
  })
  const evaluate = async (expression: string): Promise<unknown> => {
    const { result, exceptionDetails } = await client.send('Runtime.evaluate', {
      expression,
      contextId,
      awaitPromise: true,
      returnByValue: true,
    })
    expect(exceptionDetails).toBeUndefined()
    return result.value
  }
  await evaluate(`${await readFile(AXE, 'utf8')};'loaded'`)
  return async (rules) => {
    const options = { runOnly: rules, resultTypes: ['violations'] }
    const found = await evaluate(
      `axe.run(document, ${JSON.stringify(options)}).then(({ violations }) => JSON.stringify(violations.map(({ id, nodes }) => id + ' ' + nodes.map(({ html }) => html).join(' '))))`,
    )
    return JSON.parse(String(found)) as string[]
  }
}

/**
 * A browser script that returns the names of the text fields of the open dialog whose name does not say whether the
 * field must be filled in. The field of the search is left out, because it belongs to no form.
 */
const UNMARKED_FIELDS = `Array.from(
  document.querySelectorAll('dialog[open] :is(input:not([type=radio], [type=checkbox], [type=number], [role=combobox]), textarea)'),
).flatMap(({ labels, required }) => {
  const text = Array.from(labels, ({ textContent }) => textContent).join(' ')
  return text.includes(required ? '(required)' : '(optional') ? [] : [text]
})`

/**
 * Checks a page with axe in both themes and at three widths. Only the rules about colors run in the second theme. Also
 * checks that the page needs no horizontal scrolling, and that the text fields of an open dialog are marked as required
 * or optional.
 */
export async function expectAccessible(page: Page, name: string): Promise<void> {
  expect(await page.evaluate(UNMARKED_FIELDS), name).toEqual([])
  const violations = await loadAxe(page)
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 900 })
    for (const theme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: theme })
      const where = `${name} ${theme} ${width}`
      expect(await violations(theme === 'light' ? TAGS : COLOR_RULES), where).toEqual([])
      const excess = await page.evaluate(
        'document.documentElement.scrollWidth - document.documentElement.clientWidth',
      )
      expect(excess, where).toBe(0)
      const folder = process.env['CONSOLE_PICTURES']
      if (folder !== undefined) {
        const height = Number(await page.evaluate('document.documentElement.scrollHeight'))
        const fullPage = height < TALLEST_PICTURE
        await page.screenshot({ path: `${folder}/${name}-${theme}-${width}.png`, fullPage })
      }
    }
  }
  await page.setViewportSize(USUAL_SIZE)
}
