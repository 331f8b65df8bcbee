/** A person who uses a page of the console with the keyboard alone. */
import type { Locator, Page } from 'playwright-core'
import { expect } from 'vitest'

/** The maximum number of controls between two controls that a test uses one after the other. */
const MAX_TABS = 80

/** Checks that an element has the focus, and that the page shows which element this is. */
export async function expectVisibleFocus(page: Page): Promise<void> {
  await expect
    .poll(() =>
      page.evaluate(
        `(() => {
          const { tagName, textContent } = document.activeElement
          const { outlineStyle, boxShadow } = getComputedStyle(document.activeElement)
          return tagName === 'BODY' || (outlineStyle === 'none' && boxShadow === 'none')
            ? 'no visible focus on ' + tagName + ' ' + textContent.slice(0, 40)
            : 'visible'
        })()`,
      ),
    )
    .toBe('visible')
}

/** Presses the Tab key until the control has the focus. The focus must be visible on the way. */
export async function tabTo(page: Page, control: Locator): Promise<void> {
  await control.waitFor()
  const isFocused = () => control.evaluate((element) => element.matches(':focus'))
  for (let presses = 0; presses < MAX_TABS && !(await isFocused()); presses += 1)
    await page.keyboard.press('Tab')
  expect(await isFocused(), String(control)).toBe(true)
  await expectVisibleFocus(page)
}

/** Moves the focus to the control with the Tab key, and presses Enter. */
export async function enter(page: Page, control: Locator): Promise<void> {
  await tabTo(page, control)
  await page.keyboard.press('Enter')
  await expectVisibleFocus(page)
}

/** Returns the text of the focused element. */
export const focusedText = (page: Page): Promise<string> =>
  page.evaluate('document.activeElement.textContent')
