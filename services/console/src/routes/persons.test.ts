/** Tests that a person who leaves loses access at once, and that sessions of others can be ended. */
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type ConsoleFixture,
  SERVICE_KEY,
  startConsoleFixture,
} from '../../test-support/console-fixture.ts'
import { createMemoryRequestStore, createMemorySessionStore } from '../adapters/memory/stores.ts'

const PASSWORD = 'a long password'
const AS_SERVICE = { Authorization: `Bearer ${SERVICE_KEY}` }

describe('the persons of the console', () => {
  let folder: string
  let file: string
  let lines: Record<'ada' | 'eve', string>
  let at: ConsoleFixture
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-persons-'))
    file = join(folder, 'users')
    lines = {
      ada: await userLine('ada', 'operator', PASSWORD),
      eve: await userLine('eve', 'operator', PASSWORD),
    }
    await write(lines.ada, lines.eve)
    at = await startConsoleFixture(env())
  })
  afterEach(async () => {
    await at[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })
  const env = () => ({ SIGN_IN: 'link,password', USERS_FILE: file })
  // The watcher could read a file that is written in place while it is still empty.
  const write = async (...text: readonly string[]): Promise<void> => {
    await writeFile(`${file}.new`, text.join('\n'))
    await rename(`${file}.new`, file)
  }
  const signIn = (User: string, console = at) => console.signIn({ User, Password: PASSWORD })
  const statusOf = async (cookie: string, console = at): Promise<number> =>
    (await console.request('/api/session', { cookie })).status
  const roleOf = async (cookie: string): Promise<unknown> =>
    ((await (await at.request('/api/session', { cookie })).json()) as { Role?: unknown }).Role
  const persons = async (cookie: string) =>
    (await (await at.request('/api/persons', { cookie })).json()) as {
      Sessions: readonly { User: string; Role: string; Way: string }[]
    }

  it('a person who is removed from the users file loses the session and its event stream, and cannot sign in again', async () => {
    const [ada, eve] = [await signIn('ada'), await signIn('eve')]
    const stream = await at.request('/api/stream', { cookie: eve })
    await write(lines.ada)
    expect(await stream.text()).toContain('"signed_out"')
    expect([await statusOf(eve), await statusOf(ada)]).toEqual([401, 200])
    await expect(signIn('eve')).rejects.toThrow('401')
    await write(lines.ada, lines.eve)
    await eventually(async () => expect(await signIn('eve')).toMatch(/^console=/))
    expect(await statusOf(eve)).toBe(401) // the session has ended, and does not come back
  })

  it('a role that is changed in the users file counts for the sessions that have begun before', async () => {
    const eve = await signIn('eve')
    await write(lines.ada, lines.eve.replace(':operator:', ':viewer:'))
    await eventually(async () => expect(await roleOf(eve)).toBe('viewer'))
    const end = await at.request('/api/persons?user=ada', { method: 'DELETE', cookie: eve })
    expect(end.status).toBe(403)
    await write(lines.ada, lines.eve)
    await eventually(async () => expect(await roleOf(eve)).toBe('operator'))
  })

  it('a changed password ends the sessions of the person', async () => {
    const [ada, eve] = [await signIn('ada'), await signIn('eve')]
    await write(lines.ada, await userLine('eve', 'operator', 'another long password'))
    await eventually(async () => expect(await statusOf(eve)).toBe(401))
    expect(await statusOf(ada)).toBe(200)
  })

  it('an invalid users file changes nothing, and is reported', async () => {
    const eve = await signIn('eve')
    await write(lines.ada, 'eve:operator:a secret')
    await eventually(() => expect(at.log()).toContain('list file is not valid'))
    expect(at.log()).not.toContain('a secret')
    expect(await statusOf(eve)).toBe(200)
    const { dependencies } = (await (await at.request('/health/ready')).json()) as {
      dependencies: Record<string, unknown>
    }
    expect(JSON.stringify(dependencies)).toContain('users-file')
    expect(await (await at.request('/metrics')).text()).toContain('users_file_valid{')
  })

  it('a session that a console before a restart has stored is authorized by the users file and the ways of the present one', async () => {
    const stores = {
      sessions: createMemorySessionStore(Date.now),
      actions: { increment: async () => 1, read: async () => 1 },
      requests: createMemoryRequestStore(() => 0),
    }
    const cookies: string[] = []
    {
      await using before = await startConsoleFixture(env(), stores)
      cookies.push(await signIn('ada', before), await signIn('eve', before))
      cookies.push(await before.signIn({ Link: before.signInLink().split('#')[1] }))
    }
    // The release before stored no digest of the line.
    for (const session of await stores.sessions.all())
      await stores.sessions.put({ ...session, line: undefined })
    await write(lines.ada)
    await using present = await startConsoleFixture({ ...env(), SIGN_IN: 'password' }, stores)
    const statuses = await Promise.all(cookies.map((cookie) => statusOf(cookie, present)))
    expect(statuses).toEqual([200, 401, 401])
    // From its first use, such a session ends with a changed password as well.
    await write(await userLine('ada', 'operator', 'another long password'))
    await eventually(async () => expect(await statusOf(cookies[0] ?? '', present)).toBe(401))
  })

  it('an operator lists the sessions of all persons, and ends those of one person with their event streams', async () => {
    const [ada, ...eve] = [await signIn('ada'), await signIn('eve'), await signIn('eve')]
    const stream = await at.request('/api/stream', { cookie: eve[0] })
    expect((await persons(ada)).Sessions.map(({ User }) => User).toSorted()).toEqual([
      'ada',
      'eve',
      'eve',
    ])
    const ended = await at.request('/api/persons?user=eve', { method: 'DELETE', cookie: ada })
    expect([ended.status, await ended.json()]).toEqual([200, { Ended: 2 }])
    expect(await stream.text()).toContain('"signed_out"')
    for (const cookie of eve) expect(await statusOf(cookie)).toBe(401)
    expect(await persons(ada)).toMatchObject({ Sessions: [{ User: 'ada', Role: 'operator' }] })
    expect(at.log()).toContain('sessions of a person were ended')
    // An unknown person has no sessions.
    const none = await at.request('/api/persons?user=unknown', { method: 'DELETE', cookie: ada })
    expect(await none.json()).toEqual({ Ended: 0 })
    expect((await at.request('/api/persons', { method: 'DELETE', cookie: ada })).status).toBe(400)
  })

  it('a holder of a service key lists and ends sessions without a browser, and no other caller does', async () => {
    const [ada, eve] = [await signIn('ada'), await signIn('eve')]
    const listed = await (await at.request('/sessions', { headers: AS_SERVICE })).text()
    expect(listed).toContain('"eve"')
    for (const cookie of [ada, eve]) expect(listed).not.toContain(cookie.split('=')[1])
    const ended = await at.request('/sessions?user=eve', { method: 'DELETE', headers: AS_SERVICE })
    expect(await ended.json()).toEqual({ Ended: 1 })
    expect([await statusOf(ada), await statusOf(eve)]).toEqual([200, 401])
    for (const method of ['GET', 'DELETE'])
      for (const headers of [{}, { Authorization: 'Bearer x' }])
        expect(
          (await at.request('/sessions?user=ada', { method, headers, cookie: ada })).status,
        ).toBe(401)
    expect(await statusOf(ada)).toBe(200)
  })
})
