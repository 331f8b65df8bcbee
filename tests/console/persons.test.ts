/** Tests that persons see in a real browser who is signed in, and that operators end the sessions of others. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectAccessible } from './accessibility.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'

const PASSWORD = 'a long password'
/** A long name must not make the page wider than a narrow window. */
const EVE = `eve.${'long-name.'.repeat(5)}@example.com`

describe('the persons on the page Settings', () => {
  let at: FakeConsole
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-persons-'))
    const file = join(folder, 'users')
    const lines = [
      await userLine('ada@example.com', 'operator', PASSWORD),
      await userLine(EVE, 'viewer', PASSWORD),
    ]
    await writeFile(file, lines.join('\n'))
    at = await startFakeConsole({ SIGN_IN: 'password', USERS_FILE: file }, { password: PASSWORD })
  })
  afterAll(async () => {
    expect(at.problems).toEqual([])
    await at[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  async function signIn(page: Page, user: string): Promise<Page> {
    await page.getByLabel('User').fill(user)
    await page.getByLabel('Password').fill(PASSWORD)
    await page.getByRole('button', { name: 'Sign in' }).click()
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
