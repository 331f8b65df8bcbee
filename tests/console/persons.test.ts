/** Tests that persons see in a real browser who is signed in, and that operators end the sessions of others. */
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { signInAs } from './users.ts'

/** A long name must not make the page wider than a narrow window. */
const EVE = `eve.${'long-name.'.repeat(5)}@example.com`

describe('the persons on the page Settings', () => {
  let at: FakeConsole
  beforeAll(async () => {
    const users = { 'ada@example.com': 'operator', [EVE]: 'viewer' } as const
    at = await startFakeConsole({ SIGN_IN: 'password' }, users)
  })
  afterAll(async () => {
    expect(at.problems).toEqual([])
    await at[Symbol.asyncDispose]()
  })

  async function signIn(page: Page, user: string): Promise<Page> {
    await signInAs(page, user)
    await page.getByRole('navigation').waitFor()
    return page
  }

  it('an operator ends all sessions of a person, whose open page then shows the sign-in', async () => {
    const eve = await signIn(await (await at.another()).open(`${at.url}/settings`), EVE)
    const own = eve.getByRole('region', { name: 'All persons' }).getByRole('row')
    await own.filter({ hasText: EVE }).waitFor()
    await eve
      .getByRole('button', { name: 'End' })
      .and(eve.locator('[aria-disabled=true]'))
      .waitFor()

    const ada = await signIn(await at.open(`${at.url}/settings`), 'ada@example.com')
    const persons = ada.getByRole('region', { name: 'All persons' })
    await persons.getByRole('row').filter({ hasText: 'ada@example.com' }).waitFor()
    await expectAccessible(ada, 'settings-persons')
    const row = persons.getByRole('row').filter({ hasText: EVE })
    await row.getByRole('button', { name: 'End' }).click()
    await ada.getByRole('heading', { name: `End all sessions of ${EVE}?` }).waitFor()
    await expectAccessible(ada, 'settings-end-sessions')
    await ada.getByRole('dialog').getByRole('button', { name: 'End', exact: true }).click()
    await row.waitFor({ state: 'detached' })
    await eve.getByRole('heading', { name: 'Sign in' }).waitFor()
  })
})
