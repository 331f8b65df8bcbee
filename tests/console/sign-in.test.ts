/** Tests the sign-in to the console with a one-time link that has expired. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'

const TEN_MINUTES_MS = 600_000

describe('a one-time link that has expired', () => {
  let at: FakeConsole
  /** By how much the clock of the console is ahead. */
  let aheadMs = 0

  beforeAll(async () => {
    const now = Date.now
    vi.spyOn(Date, 'now').mockImplementation(() => now() + aheadMs)
    at = await startFakeConsole()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    vi.restoreAllMocks()
  })

  it('after ten minutes a link is rejected, and the page says how to get a new one', async () => {
    const link = at.signInLink() ?? ''
    aheadMs = TEN_MINUTES_MS
    const page = await at.open(link)
    await page.getByRole('alert').getByText('older than ten minutes').waitFor()
    await page
      .getByText('For a new link run npx --no -- integration-host console sign-in.')
      .waitFor()
    expect(await at.context.cookies()).toEqual([])
    expect(at.problems).toEqual([])
  })
})
