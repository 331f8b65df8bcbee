/** Tests that conditions and errors link to the sections of the documents, which the console serves as text. */
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleBrowser, startConsoleBrowser } from './console-browser.ts'

describe('the documents of the console in a browser', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startConsoleBrowser()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())
  afterEach(() => expect(at.problems).toEqual([]))

  /** Follows a link to a section of a document, and expects that the browser shows this section. */
  async function follow(page: Page, link: string, heading: string): Promise<void> {
    const opened = at.context.waitForEvent('page')
    await page.getByRole('link', { name: link }).click()
    const document = await opened
    await document.getByText(heading).waitFor()
    expect(new URL(document.url()).origin).toBe(new URL(at.console.url).origin)
    const isInView = `(() => {
      const [text] = document.querySelector('pre').childNodes
      const range = document.createRange()
      range.setStart(text, text.data.indexOf(${JSON.stringify(`${heading}\n`)}))
      const { top } = range.getBoundingClientRect()
      return top >= 0 && top < innerHeight
    })()`
    await expect.poll(() => document.evaluate(isInView)).toBe(true)
    await document.close()
  }

  it('a condition links to its section of the runbook, and an error to the section on its code', async () => {
    const page = await at.signIn()
    const paused = await at.request(`${at.host.coordinator}/processes/OrderProcess/pause`, {})
    expect(paused.status).toBe(200)
    await follow(page, 'Runbook on ProcessPaused', '### ProcessPaused')
    await page.goto(`${at.console.url}/runs/OrderProcess/none`)
    await follow(page, 'What transaction_not_found means', '### transaction_not_found')
  })
})
