import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { createMemorySessionStore } from '../adapters/memory/stores.ts'
import { browserName, createKnownBrowsers } from './known-browsers.ts'
import { createOneTimeLinks } from './one-time-link.ts'
import { isPasswordOf, parseUsers } from './password.ts'
import { userLine } from '@integration-host/shared/access/user-line'
import { createSessions } from './sessions.ts'
import { createSignInDelay } from './sign-in-delay.ts'

const MINUTE = 60_000
const HERE = '192.0.2.0/24'

const ADA = { user: 'ada', role: 'operator', way: 'password', browser: 'Firefox' } as const

function sessionsAt() {
  const clock = { now: 0 }
  const now = (): number => clock.now
  const sessions = createSessions({
    store: createMemorySessionStore(now),
    now,
    hours: 12,
    idleMinutes: 60,
    authorize: ({ role }) => ({ role }),
  })
  return { clock, sessions }
}

describe('a session of the console', () => {
  it('a session of the console ends 60 minutes after its last use, and at the latest 12 hours after the sign-in', async () => {
    const { clock, sessions } = sessionsAt()
    const { secret } = await sessions.begin(ADA)
    clock.now = 59 * MINUTE
    expect(await sessions.use(secret)).toMatchObject({ user: 'ada', role: 'operator' })
    clock.now += 59 * MINUTE
    expect(await sessions.use(secret)).not.toBeNull()
    clock.now += 60 * MINUTE
    expect(await sessions.use(secret)).toBeNull()

    const other = await sessions.begin(ADA)
    for (let half = 0; half < 23; half += 1) {
      clock.now += 30 * MINUTE
      expect(await sessions.use(other.secret)).not.toBeNull()
    }
    clock.now += 30 * MINUTE
    expect(await sessions.use(other.secret)).toBeNull()
  })

  it('checking whether a session is valid does not count as a use of the session', async () => {
    const { clock, sessions } = sessionsAt()
    const { session } = await sessions.begin(ADA)
    clock.now = 59 * MINUTE
    expect(await sessions.isValid(session.digest)).toBe(true)
    clock.now = 60 * MINUTE
    expect(await sessions.isValid(session.digest)).toBe(false)
  })

  it('a request that an open page sends by itself does not count as a use of the session', async () => {
    const { clock, sessions } = sessionsAt()
    const { secret } = await sessions.begin(ADA)
    clock.now = 59 * MINUTE
    expect(await sessions.use(secret, true)).not.toBeNull()
    clock.now = 60 * MINUTE
    expect(await sessions.use(secret, true)).toBeNull()
  })

  it('the sixth session of a person ends the oldest session of the person and calls the listener', async () => {
    const { clock, sessions } = sessionsAt()
    const ended: string[] = []
    sessions.onEnd((digest) => ended.push(digest))
    const first = await sessions.begin(ADA)
    for (clock.now = 1; clock.now <= 5; clock.now += 1) await sessions.begin(ADA)
    expect(ended).toEqual([first.session.digest])
    expect(await sessions.use(first.secret)).toBeNull()
  })
})

describe('the sessions of a person at the console', () => {
  it('a person sees only valid sessions, newest first, and no session of another person with the same name', async () => {
    const { clock, sessions } = sessionsAt()
    await sessions.begin(ADA)
    clock.now = 40 * MINUTE
    const second = await sessions.begin(ADA)
    clock.now = 41 * MINUTE
    const third = await sessions.begin(ADA)
    await sessions.begin({ ...ADA, way: 'oidc' })
    await sessions.begin({ ...ADA, user: 'ben' })
    clock.now = 60 * MINUTE
    expect(await sessions.ofSamePerson(third.session)).toEqual([third.session, second.session])
  })
})

it.each([
  ['Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0', 'Firefox on Linux'],
  [
    'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0',
    'Edge on Windows',
  ],
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1',
    'Safari on iPhone',
  ],
  ['<script>', 'A browser'],
  [undefined, 'A browser'],
])('the session of a browser with the User-Agent %s is named %s', (userAgent, name) => {
  expect(browserName(userAgent)).toBe(name)
})

describe('a one-time link of the console', () => {
  it('a one-time link signs in once, and only within ten minutes', () => {
    let now = 0
    const links = createOneTimeLinks(() => now)
    const { secret } = links.create()
    expect([links.use(secret), links.use(secret), links.use('')]).toEqual([true, false, false])
    const late = links.create()
    now = 10 * MINUTE
    expect(links.use(late.secret)).toBe(false)
  })
})

describe('the users file of the console', () => {
  it('a line of the users file accepts only the password for which it was made', async () => {
    const users = parseUsers(
      `# team\n\n${await userLine('ada@example.com', 'operator', 'pässword')}\n`,
    )
    const user = users.get('ada@example.com')
    expect(user?.role).toBe('operator')
    expect(await isPasswordOf(user, 'pa\u0308ssword')).toBe(true) // in another Unicode form
    expect(await isPasswordOf(user, 'password')).toBe(false)
    expect(await isPasswordOf(undefined, '')).toBe(false)
  })

  it('an invalid line of the users file is reported by its number, without its content', async () => {
    const line = await userLine('ada', 'viewer', 'x')
    expect(() => parseUsers(`${line}\nben:admin:secret`)).toThrow(/^line 2 is not name:role/)
    expect(() => parseUsers(`${line}\n${line}`)).toThrow('line 2 repeats a name')
  })
})

describe('the delay after failed sign-ins at the console', () => {
  it('the sign-in delay for a name doubles with each failure up to 60 s, and ends with a success', () => {
    let now = 0
    const delay = createSignInDelay(() => now)
    const seconds = Array.from({ length: 8 }, () => {
      delay.failed('ada', HERE)
      const wait = delay.secondsUntil('ada', HERE)
      now += wait * 1_000
      return wait
    })
    expect(seconds).toEqual([1, 2, 4, 8, 16, 32, 60, 60])
    delay.succeeded('ada', HERE)
    delay.failed('ada', HERE)
    expect(delay.secondsUntil('ada', HERE)).toBe(1)
  })

  it('failed sign-ins delay neither another name nor the same name at another place', () => {
    const delay = createSignInDelay(() => 0)
    for (let name = 0; name < 100; name += 1) delay.failed(`name-${name}`, HERE)
    expect(delay.secondsUntil('ada', HERE)).toBe(0)
    for (let count = 0; count < 10; count += 1) delay.failed('ada', HERE)
    expect([delay.secondsUntil('ada', HERE), delay.secondsUntil('ada', '203.0.113.0/24')]).toEqual([
      60, 0,
    ])
  })

  it('the number of failures is halved with each five minutes without a failure', () => {
    let now = 0
    const delay = createSignInDelay(() => now)
    for (let count = 0; count < 7; count += 1) delay.failed('ada', HERE)
    now = 10 * MINUTE
    delay.failed('ada', HERE)
    expect(delay.secondsUntil('ada', HERE)).toBe(2)
  })

  it('the failures of at most 10,000 names are kept in memory', () => {
    const delay = createSignInDelay(() => 0)
    delay.failed('ada', HERE)
    for (let name = 1; name < 10_000; name += 1) delay.failed(`name-${name}`, HERE)
    expect(delay.secondsUntil('ada', HERE)).toBe(1)
    delay.failed('name-10000', HERE)
    expect(delay.secondsUntil('ada', HERE)).toBe(0)
  })
})

describe('a browser in which a person has signed in', () => {
  const KEY = new Secret('a key of the console'.padEnd(32, '!'))

  it('the cookie of a known browser counts for its person only, and for 180 days', () => {
    let now = 1_000
    const browsers = createKnownBrowsers(KEY, () => now)
    const cookie = browsers.issue('ada')
    expect(browsers.idOf('ada', cookie)).toBe(cookie.split('.')[0])
    expect(browsers.idOf('ben', cookie)).toBeNull()
    now += 180 * 24 * 60 * MINUTE - 1
    expect(browsers.idOf('ada', cookie)).not.toBeNull()
    now += 1
    expect(browsers.idOf('ada', cookie)).toBeNull()
  })

  it('the cookie of a known browser is recognized by every console with the same key, and cannot be made up', () => {
    const now = (): number => 1_000
    const cookie = createKnownBrowsers(KEY, now).issue('ada')
    const at = createKnownBrowsers(KEY, now)
    expect(at.idOf('ada', cookie)).not.toBeNull()
    expect(createKnownBrowsers(new Secret('x'.repeat(32)), now).idOf('ada', cookie)).toBeNull()
    const [id = '', issuedAt = '', mac = ''] = cookie.split('.')
    for (const forged of [
      undefined,
      '',
      id,
      `${id}.${issuedAt}`,
      `${id}.${issuedAt}.`,
      `${id}.9999.${mac}`,
      `${'A'.repeat(22)}.${issuedAt}.${mac}`,
      `${id}.${issuedAt}.${'A'.repeat(43)}`,
      `${id}.${issuedAt}.${mac}\n`,
    ])
      expect(at.idOf('ada', forged)).toBeNull()
  })
})
