/** Tests what a person with the role viewer sees on the pages of the console. */
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'
import { fill, LOADED } from './hostile-installation.ts'
import { signInAs } from './users.ts'

/** The addresses of the pages with buttons that are disabled for a viewer. */
const WITH_ACTIONS = [
  '/bulk/op',
  '/companies',
  '/companies/0',
  '/services',
  `/processes/${PROCESS}`,
  `/runs/${PROCESS}/${LOADED}`,
  '/runs',
]
const WITHOUT_ACTIONS = [
  '/',
  '/processes',
  `/dead-letters/${PROCESS}`,
  '/settings',
  '/limits',
  '/limits/0',
  '/charts',
  '/activity',
  '/sandbox',
]

describe('the pages of the console for a viewer', () => {
  let at: FakeConsole
  let page: Page
  /** A page of an operator, in another browser. */
  let operated: Page

  beforeAll(async () => {
    at = await startFakeConsole({ SIGN_IN: 'link,password' }, { vera: 'viewer' })
    fill(at.fake)
    page = await at.open(at.url)
    await signInAs(page, 'vera')
    await page.getByRole('navigation').waitFor()
    operated = await (await at.another()).open(at.signInLink() ?? '')
    await operated.getByRole('navigation').waitFor()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  /** Returns each disabled button as its text and the reason that a screen reader announces. */
  const disabled = (): Promise<readonly (readonly [string, string])[]> =>
    page.evaluate(
      `[...document.querySelectorAll('button[aria-disabled=true], button:disabled')].map((button) => [
        button.textContent.trim(),
        document.getElementById(button.getAttribute('aria-describedby'))?.textContent.trim() ?? '',
      ])`,
    )

  it.each([...WITH_ACTIONS, ...WITHOUT_ACTIONS])(
    'every disabled button of the page at %s says why it is disabled',
    async (path) => {
      await page.goto(at.url + path)
      await page.getByRole('heading', { level: 1 }).waitFor()
      if (WITH_ACTIONS.includes(path))
        await eventually(async () =>
          expect((await disabled()).map(([, reason]) => reason)).toContain(
            'This needs the role operator.',
          ),
        )
      expect((await disabled()).filter(([, reason]) => reason === '')).toEqual([])
    },
  )

  it.each(WITH_ACTIONS)(
    'a viewer sees the same buttons as an operator on the page at %s',
    async (path) => {
      /** The names of the visible buttons in the main part of a page. */
      const names = async (shown: Page): Promise<readonly string[]> =>
        (await shown.locator('main button:visible').allTextContents()).toSorted()
      await operated.goto(at.url + path)
      await page.goto(at.url + path)
      await eventually(async () => {
        const ofOperator = await names(operated)
        expect(ofOperator.length).toBeGreaterThan(0)
        expect(await names(page)).toEqual(ofOperator)
      })
    },
  )
})
