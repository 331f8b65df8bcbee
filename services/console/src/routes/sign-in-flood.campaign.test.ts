/** Tests that a client that tries passwords keeps no person out of the console. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'

const PASSWORD = 'a long password'
const STRANGER = '198.51.100.4'
const ADA = '203.0.113.9'

describe('the password sign-in of the console during a flood of wrong passwords', () => {
  let folder: string
  let file: string
  let at: ConsoleFixture
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'sign-in-flood-'))
    file = join(folder, 'users')
    const lines = await Promise.all(
      ['ada', 'ben'].map((name) => userLine(name, 'operator', PASSWORD)),
    )
    await writeFile(file, lines.join('\n'))
  })
  afterAll(() => rm(folder, { recursive: true }))
  beforeEach(async () => {
    // The clock stands still, so that the delay after a wrong password is not over on a slow machine.
    vi.useFakeTimers({ toFake: ['Date'] })
    at = await startConsoleFixture({
      SIGN_IN: 'password',
      USERS_FILE: file,
      TRUSTED_PROXIES: '127.0.0.0/8,::1',
    })
  })
  afterEach(async () => {
    vi.useRealTimers()
    await at[Symbol.asyncDispose]()
  })

  const signIn = (address: string, name: string, password: string, cookie = '') =>
    at.request('/api/session', {
      method: 'POST',
      cookie,
      headers: { 'X-Forwarded-For': address },
      body: JSON.stringify({ User: name, Password: password }),
    })
  const statusOf = async (...input: Parameters<typeof signIn>): Promise<number> =>
    (await signIn(...input)).status

  /** Sends wrong passwords for made-up names on several connections until `work` has ended. */
  async function whileFlooding<T>(address: string, work: () => Promise<T>): Promise<T> {
    let isOver = false
    let attempts = 0
    const started = Promise.withResolvers<void>()
    const strangers = Array.from({ length: 12 }, async () => {
      while (!isOver) {
        attempts += 1
        await signIn(address, `made-up-${attempts}`, 'a wrong password')
        if (attempts > 24) started.resolve()
      }
    })
    try {
      await started.promise
      return await work()
    } finally {
      isOver = true
      await Promise.all(strangers)
    }
  }

  it('wrong passwords for made-up names keep no person out, from whichever network they come', async () => {
    const statuses = await whileFlooding(STRANGER, async () => [
      await statusOf(ADA, 'ada', PASSWORD),
      await statusOf(STRANGER, 'ben', PASSWORD),
    ])
    expect(statuses).toEqual([200, 200])
  })

  it('wrong passwords for a name delay this name in their own network only', async () => {
    expect(await statusOf(STRANGER, 'ada', 'a wrong password')).toBe(401)
    expect(await statusOf('198.51.100.250', 'ada', PASSWORD)).toBe(429)
    expect(await statusOf(STRANGER, 'ben', PASSWORD)).toBe(200)
    expect(await statusOf(ADA, 'ada', PASSWORD)).toBe(200)
  })

  it('a browser in which the person has signed in is not delayed by wrong passwords from its network', async () => {
    const first = await signIn(ADA, 'ada', PASSWORD)
    const known = first.headers.getSetCookie().find((one) => one.startsWith('console-browser='))
    expect(known).toMatch(/; HttpOnly; SameSite=Strict$/)
    const cookie = known?.split(';')[0] ?? ''
    expect(await statusOf(ADA, 'ada', 'a wrong password')).toBe(401)
    expect(await statusOf(ADA, 'ada', PASSWORD)).toBe(429)
    expect(await statusOf(ADA, 'ada', PASSWORD, cookie)).toBe(200)
    // The cookie is no way around the delay: the failures of this browser are counted as well.
    expect(await statusOf(ADA, 'ada', 'a wrong password', cookie)).toBe(401)
    expect(await statusOf(ADA, 'ada', PASSWORD, cookie)).toBe(429)
    // It counts for its person only.
    expect(await statusOf(ADA, 'ben', 'a wrong password', cookie)).toBe(401)
    expect(await statusOf(ADA, 'ben', PASSWORD)).toBe(429)
  })

  it('a known browser passes while unknown clients of many networks wait for their turns', async () => {
    const known = (await signIn(ADA, 'ada', PASSWORD)).headers.getSetCookie()
    const cookie = known.find((one) => one.startsWith('console-browser='))?.split(';')[0] ?? ''
    let checked = 0
    const strangers = Array.from({ length: 12 }, (_, network) =>
      signIn(`2001:db8:0:${network.toString(16)}::1`, 'made-up', 'a wrong password').finally(() => {
        checked += 1
      }),
    )
    expect(await statusOf(ADA, 'ada', PASSWORD, cookie)).toBe(200)
    expect(checked).toBeLessThan(strangers.length)
    await Promise.all(strangers)
  })

  it('a client that a proxy names cannot choose its network with the header that the proxy extends', async () => {
    expect(await statusOf(`1.1.1.1, ${STRANGER}`, 'ada', 'a wrong password')).toBe(401)
    expect(await statusOf(`2.2.2.2, ${STRANGER}`, 'ada', PASSWORD)).toBe(429)
  })

  it('a client that no trusted proxy names cannot choose its network', async () => {
    await using direct = await startConsoleFixture({ SIGN_IN: 'password', USERS_FILE: file })
    const attempt = (address: string, password: string) =>
      direct.request('/api/session', {
        method: 'POST',
        headers: { 'X-Forwarded-For': address },
        body: JSON.stringify({ User: 'ada', Password: password }),
      })
    expect((await attempt(STRANGER, 'a wrong password')).status).toBe(401)
    expect((await attempt(ADA, PASSWORD)).status).toBe(429)
  })
})
