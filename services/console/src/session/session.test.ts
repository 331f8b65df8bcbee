import { describe, expect, it } from 'vitest'
import { createMemorySessionStore } from '../adapters/memory/session-store.ts'
import { createOneTimeLinks } from './one-time-link.ts'
import { isPasswordOf, parseUsers } from './password.ts'
import { userLine } from '@integration-host/shared/access/user-line'
import { createSessions } from './sessions.ts'
import { createSignInDelay } from './sign-in-delay.ts'

const MINUTE = 60_000

function sessionsAt() {
  const clock = { now: 0 }
  const now = (): number => clock.now
  const sessions = createSessions({
    store: createMemorySessionStore(now),
    now,
    hours: 12,
    idleMinutes: 60,
  })
  return { clock, sessions }
}

describe('a session', () => {
  it('ends 60 minutes after its last use, and 12 hours after the sign-in at the latest', async () => {
    const { clock, sessions } = sessionsAt()
    const { secret } = await sessions.begin('ada', 'operator')
    clock.now = 59 * MINUTE
    expect(await sessions.use(secret)).toMatchObject({ user: 'ada', role: 'operator' })
    clock.now += 59 * MINUTE
    expect(await sessions.use(secret)).not.toBeNull()
    clock.now += 60 * MINUTE
    expect(await sessions.use(secret)).toBeNull()

    const other = await sessions.begin('ada', 'operator')
    for (let half = 0; half < 23; half += 1) {
      clock.now += 30 * MINUTE
      expect(await sessions.use(other.secret)).not.toBeNull()
    }
    clock.now += 30 * MINUTE
    expect(await sessions.use(other.secret)).toBeNull()
  })

  it('checking whether it is valid does not keep it alive', async () => {
    const { clock, sessions } = sessionsAt()
    const { session } = await sessions.begin('ada', 'viewer')
    clock.now = 59 * MINUTE
    expect(await sessions.isValid(session.digest)).toBe(true)
    clock.now = 60 * MINUTE
    expect(await sessions.isValid(session.digest)).toBe(false)
  })

  it('the sixth session of a person ends the oldest one, and reports its end', async () => {
    const { clock, sessions } = sessionsAt()
    const ended: string[] = []
    sessions.onEnd((digest) => ended.push(digest))
    const first = await sessions.begin('ada', 'viewer')
    for (clock.now = 1; clock.now <= 5; clock.now += 1) await sessions.begin('ada', 'viewer')
    expect(ended).toEqual([first.session.digest])
    expect(await sessions.use(first.secret)).toBeNull()
  })
})

describe('a one-time link', () => {
  it('works once, and not after ten minutes', () => {
    let now = 0
    const links = createOneTimeLinks(() => now)
    const { secret } = links.create()
    expect([links.use(secret), links.use(secret), links.use('')]).toEqual([true, false, false])
    const late = links.create()
    now = 10 * MINUTE
    expect(links.use(late.secret)).toBe(false)
  })
})

describe('the users file', () => {
  it('a line made for a password accepts this password only', async () => {
    const users = parseUsers(
      `# team\n\n${await userLine('ada@example.com', 'operator', 'pässword')}\n`,
    )
    const user = users.get('ada@example.com')
    expect(user?.role).toBe('operator')
    expect(await isPasswordOf(user, 'pa\u0308ssword')).toBe(true) // the same text in another Unicode form
    expect(await isPasswordOf(user, 'password')).toBe(false)
    expect(await isPasswordOf(undefined, '')).toBe(false)
  })

  it('an invalid line is named by its number, without its content', async () => {
    const line = await userLine('ada', 'viewer', 'x')
    expect(() => parseUsers(`${line}\nben:admin:secret`)).toThrow(/^line 2 is not name:role/)
    expect(() => parseUsers(`${line}\n${line}`)).toThrow('line 2 repeats a name')
  })
})

describe('the delay after failed sign-ins', () => {
  it('doubles for the name with each failure up to 60 s, and ends with a success', () => {
    let now = 0
    const delay = createSignInDelay(() => now)
    const seconds = Array.from({ length: 8 }, () => {
      delay.failed('ada')
      const wait = delay.secondsUntil('ada')
      now += wait * 1_000
      return wait
    })
    expect(seconds).toEqual([1, 2, 4, 8, 16, 32, 60, 60])
    delay.succeeded('ada')
    delay.failed('ada')
    expect(delay.secondsUntil('ada')).toBe(1)
  })

  it('failures of many names delay every name', () => {
    const delay = createSignInDelay(() => 0)
    for (let name = 0; name < 10; name += 1) delay.failed(`name-${name}`)
    expect(delay.secondsUntil('ada')).toBe(0)
    delay.failed('name-10')
    expect(delay.secondsUntil('ada')).toBe(1)
  })
})
