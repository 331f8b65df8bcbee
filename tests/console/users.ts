/** The persons of a test who sign in with a password. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import type { Role } from '@integration-host/shared/access/scope'
import type { Page } from 'playwright-core'

export type Users = Readonly<Record<string, Role>>

/** The password of all persons. */
export const PASSWORD = 'a long password'

/** Writes a users file, which is removed with `opened`. Returns the setting with its path; no setting without users. */
export async function usersFile(
  opened: AsyncDisposableStack,
  users: Users,
): Promise<Record<string, string>> {
  const entries = Object.entries(users)
  if (entries.length === 0) return {}
  const folder = await mkdtemp(join(tmpdir(), 'console-users-'))
  opened.defer(() => rm(folder, { recursive: true }))
  const file = join(folder, 'users')
  const lines = await Promise.all(entries.map(([name, role]) => userLine(name, role, PASSWORD)))
  await writeFile(file, lines.join('\n'))
  return { USERS_FILE: file }
}

/** Signs in on a page that requests a sign-in. */
export async function signInAs(page: Page, name: string): Promise<void> {
  await page.getByLabel('User').fill(name)
  await page.getByLabel('Password').fill(PASSWORD)
  await page.getByRole('button', { name: 'Sign in' }).click()
}
