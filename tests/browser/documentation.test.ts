/** Tests the documentation page of a service in a real browser, on a large screen and on a phone. */
import { type Browser, chromium } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chromiumProgram } from '../support/backends/server-binaries.ts'
import { startSystem, type System } from '../support/system.ts'

const program = await chromiumProgram()

describe.runIf(program !== null)('the documentation page in a browser', () => {
  let system: System
  let browser: Browser

  beforeAll(async () => {
    system = await startSystem([])
    system.start('coordinator')
    await system.ready('coordinator')
    browser = await chromium.launch({ executablePath: program ?? '' })
  })
  afterAll(async () => {
    await browser?.close()
    await system?.[Symbol.asyncDispose]()
  })

  it.each([
    ['a large screen', { viewport: { width: 1280, height: 900 } }],
    ['a phone', { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }],
  ])(
    'on %s, the documentation page shows the fields, example and curl command of an operation, and calls no other host',
    async (_, screen) => {
      const origin = system.url('coordinator')
      await using context = await browser.newContext(screen)
      const page = await context.newPage()
      const requested: string[] = []
      const problems: string[] = []
      context.on('request', (request) => requested.push(request.url()))
      page.on('pageerror', (error) => problems.push(error.message))
      page.on('console', (message) => {
        if (message.type() === 'error') problems.push(message.text())
      })

      await page.goto(origin)
      expect(new URL(page.url()).pathname).toBe('/docs')
      await page.goto(`${origin}/docs#tag/transactions/POST/processes/{process}/transactions`)
      const operation = page
        .locator('section', {
          has: page.getByRole('heading', { name: 'Queue a transaction; it is durable' }),
        })
        .last()
      for (const field of ['TransactionID', 'InitialData', 'Realm', 'Tags', 'Reason'])
        await operation.getByText(field, { exact: true }).first().waitFor()
      const example = operation.locator('pre', { hasText: 'curl' })
      await example.waitFor()
      const curl = await example.innerText()
      expect(curl).toContain(`curl ${origin}/processes/`)
      expect(curl).toContain('"TransactionID": "66"')
      expect(curl).toContain('Authorization: Bearer')
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(
        screen.viewport.width,
      )

      expect(requested.filter((url) => new URL(url).origin !== origin)).toEqual([])
      expect(requested.length).toBeGreaterThan(2)
      expect(problems).toEqual([])
    },
  )
})
