import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type ConsoleFixture,
  SERVICE_KEY,
  startConsoleFixture,
} from '../test-support/console-fixture.ts'
import { userLine } from '@integration-host/shared/access/user-line'

describe('the API of the console', () => {
  let at: ConsoleFixture
  let folder: string
  let operator: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-users-'))
    const file = join(folder, 'users')
    await writeFile(file, `# people\n${await userLine('vera', 'viewer', 'a long password')}\n`)
    at = await startConsoleFixture({ SIGN_IN: 'link,password', USERS_FILE: file })
    operator = await at.signIn({ Link: at.signInLink().split('#')[1] })
  })
  afterAll(async () => {
    await at?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  it('the console responds 415 to a body in a format that an HTML form can send', async () => {
    const response = await at.request('/api/session', {
      method: 'POST',
      body: '{"Link":"x"}',
      headers: { 'Content-Type': 'text/plain' },
    })
    expect(response.status).toBe(415)
  })

  it('the session cookie of the console has SameSite=Strict, cannot be read by scripts, and is invalid after the sign-out', async () => {
    const response = await at.request('/api/session', {
      method: 'POST',
      body: JSON.stringify({ Link: at.signInLink().split('#')[1] }),
    })
    const [cookie = ''] = response.headers.getSetCookie()
    expect(cookie).toMatch(/^console=[\w-]{43}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/)
    const sent = { cookie: cookie.split(';')[0] ?? '' }
    expect((await at.request('/api/session', { method: 'DELETE', ...sent })).status).toBe(204)
    expect((await at.request('/api/now', sent)).status).toBe(401)
  })

  it('a sign-out ends all event streams of the session within two seconds', async () => {
    const cookie = await at.signIn({ Link: at.signInLink().split('#')[1] })
    const streams = [1, 2, 3].map(() => at.request('/api/stream', { cookie }))
    for (const stream of await Promise.all(streams))
      expect(stream.headers.get('Content-Type')).toBe('text/event-stream')
    const endedAt = performance.now()
    await at.request('/api/session', { method: 'DELETE', cookie })
    for (const stream of await Promise.all(streams))
      expect(await stream.text()).toMatch(/event: bye\ndata: \{"Reason":"signed_out"\}\n\n$/)
    expect(performance.now() - endedAt).toBeLessThan(2_000)
  })

  it('a person who opens an unknown address gets the program of the browser, and a program gets a problem document', async () => {
    const html = { Accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }
    const typeOf = async (path: string, headers: Readonly<Record<string, string>> = html) => {
      const response = await at.request(path, { headers })
      await response.body?.cancel()
      return [response.status, response.headers.get('Content-Type')]
    }
    const page = [404, 'text/html; charset=utf-8']
    const problem = [404, 'application/problem+json']
    for (const path of ['/nonsense', '/runs/', '/processes/a/b'])
      expect(await typeOf(path), path).toEqual(page)
    expect(await typeOf('/nonsense', { Accept: '*/*' })).toEqual(problem)
    for (const path of ['/api/nonsense', '/assets/nonsense.js'])
      expect(await typeOf(path, { ...html, 'Sec-Fetch-Site': 'same-origin' }), path).toEqual(
        problem,
      )
  })

  it('a one-time link of the console works only once', async () => {
    const body = JSON.stringify({ Link: at.signInLink().split('#')[1] })
    const first = await at.request('/api/session', { method: 'POST', body })
    const second = await at.request('/api/session', { method: 'POST', body })
    expect([first.status, second.status]).toEqual([200, 401])
  })

  it('a one-time link of the console can be created only with a service key', async () => {
    const path = '/sign-in-links'
    expect((await at.request(path, { method: 'POST' })).status).toBe(401)
    const headers = { Authorization: `Bearer ${SERVICE_KEY}` }
    const created = await at.request(path, { method: 'POST', headers })
    expect(created.status).toBe(201)
    const { Url } = (await created.json()) as { Url: string }
    expect(Url.startsWith(`${at.url}/sign-in#`)).toBe(true)
    expect(await at.signIn({ Link: Url.split('#')[1] })).toMatch(/^console=/)
  })

  it('after a wrong password, the console delays the next sign-in with the same name, and logs no secret', async () => {
    const attempt = (Password: string) =>
      at.request('/api/session', {
        method: 'POST',
        body: JSON.stringify({ User: 'mallory', Password }),
      })
    const wrong = await attempt('a wrong password')
    const soon = await attempt('a wrong password')
    expect([wrong.status, soon.status]).toEqual([401, 429])
    expect(soon.headers.get('Retry-After')).toBe('1')
    expect(at.log()).toContain('sign-in was rejected')
    for (const secret of ['a wrong password', 'a long password', operator.split('=')[1] ?? ''])
      expect(at.log()).not.toContain(secret)
  })
})
