/** `README_PICTURES=1 npm run test:console -- tests/console/pictures.test.ts` makes the pictures of the README. */
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ConsoleBrowser } from './console-browser.ts'
import {
  BROKEN_COMPANY,
  FAILED_RUN,
  startPictureInstallation,
  WAITING_RUN,
} from './picture-installation.ts'

const SIZE = { width: 1200, height: 780 }
const images = fileURLToPath(new URL('../../docs/images', import.meta.url))

describe.runIf(process.env['README_PICTURES'] === '1')('the pictures of the README', () => {
  let at: ConsoleBrowser

  beforeAll(async () => {
    at = await startPictureInstallation()
  })
  afterAll(() => at?.[Symbol.asyncDispose]())

  const picture = async (page: Page, name: string, theme: 'light' | 'dark'): Promise<void> => {
    await page.setViewportSize(SIZE)
    await page.emulateMedia({ colorScheme: theme })
    await page.getByRole('status').getByText('live', { exact: true }).waitFor()
    await page.mouse.move(0, 0)
    await page.screenshot({ path: `${images}/console-${name}.png` })
  }

  it('the pictures of the README show the page Now, a run with its timeline, the runs and the companies', async () => {
    const now = await at.signIn()
    await now.getByText('1 company must be reconnected').waitFor()
    await now.getByText('1 run failed at InvoiceProcess.notice').waitFor({ timeout: 60_000 })
    await now.locator('.numbers').getByText('3', { exact: true }).first().waitFor()
    await picture(now, 'now', 'light')

    const run = await at.open(`/runs/InvoiceProcess/${FAILED_RUN}`)
    await run.locator('.timeline').waitFor()
    await picture(run, 'run', 'light')

    const runs = await at.open('/runs')
    await runs.getByRole('link', { name: WAITING_RUN, exact: true }).waitFor()
    await picture(runs, 'runs', 'dark')

    const companies = await at.open('/companies')
    await companies.getByRole('link', { name: BROKEN_COMPANY.name }).waitFor()
    await picture(companies, 'companies', 'dark')
    expect(at.problems).toEqual([])
  })
})
