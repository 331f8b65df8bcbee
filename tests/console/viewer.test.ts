/** Tests what a person with the role viewer sees on the pages of the console. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { pages } from '../../services/console/src/contracts/pages.ts'
import { type FakeConsole, startFakeConsole } from './fake-console.ts'
import { PROCESS } from './fake-installation.ts'
import { fill, LOADED } from './hostile-installation.ts'

const PASSWORD = 'a long password'
/** The pages with buttons that are disabled for a viewer. */
const WITH_ACTIONS = ['bulk', 'companies', 'company', 'health', 'processes', 'run', 'runs']

describe('the pages of the console for a viewer', () => {
  let at: FakeConsole
  let folder: string
  let page: Page

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-users-'))
    const file = join(folder, 'users')
    await writeFile(file, await userLine('vera', 'viewer', PASSWORD))
    at = await startFakeConsole(
      { SIGN_IN: 'link,password', USERS_FILE: file },
      { password: PASSWORD },
    )
    fill(at.fake)
    page = await at.open(at.url)
    await page.getByLabel('User').fill('vera')
    await page.getByLabel('Password').fill(PASSWORD)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('navigation').waitFor()
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  /** Returns each disabled button as its text and the reason that a screen reader announces. */
  const disabled = (): Promise<readonly (readonly [string, string])[]> =>
    page.evaluate(
      `[...document.querySelectorAll('button[aria-disabled=true], button:disabled')].map((button) => [
        button.textContent.trim(),
        document.getElementById(button.getAttribute('aria-describedby'))?.textContent.trim() ?? '',
      ])`,
    )

  it.each(Object.entries(pages).filter(([name]) => name !== 'signIn'))(
    'every disabled button of the page %s says why it is disabled',
    async (name, path) => {
      const ids = { run: LOADED, bulk: 'op' } as Readonly<Record<string, string>>
      const address = path.replace(':process', PROCESS).replaceAll(/:\w+/g, ids[name] ?? '0')
      await page.goto(at.url + address)
      await page.getByRole('heading', { level: 1 }).waitFor()
      if (WITH_ACTIONS.includes(name))
        await eventually(async () =>
          expect((await disabled()).map(([, reason]) => reason)).toContain(
            'This needs the role operator.',
          ),
        )
      expect((await disabled()).filter(([, reason]) => reason === '')).toEqual([])
    },
  )
})
