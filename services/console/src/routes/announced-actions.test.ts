import { afterAll, beforeAll, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'

const PROCESS = {
  Process: 'OrderProcess',
  Steps: ['order'],
  RequireInternet: false,
  Paused: true,
  PausedAt: null,
  PausedBy: null,
  Reason: null,
  Version: null,
  BuiltIn: false,
  On: [],
}

let coordinator: FakeService
let console: ConsoleFixture
let cookie: string

beforeAll(async () => {
  coordinator = await startFakeService(({ url }) => {
    if (url.pathname === '/processes/OrderProcess/pause') return { body: PROCESS }
    if (url.pathname === '/processes/OrderProcess/resume')
      return { status: 409, body: { code: 'transaction_active', detail: 'not possible now' } }
    return undefined
  })
  console = await startConsoleFixture({ COORDINATOR_URL: coordinator.url })
  cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
})
afterAll(async () => {
  for (const one of [console, coordinator]) await one?.[Symbol.asyncDispose]()
})

it('the event stream announces each action that was executed or whose response was lost, and no rejected action', async () => {
  const stream = await console.request('/api/stream', { cookie })
  const decoder = new TextDecoder()
  const reader = stream.body?.getReader()
  let text = ''
  async function announcements(count: number): Promise<void> {
    while (text.split('event: acted\n').length - 1 < count) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined }
      if (done) throw new Error(`the stream has ended after ${text}`)
      text += decoder.decode(value, { stream: true })
    }
  }
  const post = async (path: string, body: object): Promise<number> =>
    (await console.request(path, { method: 'POST', cookie, body: JSON.stringify(body) })).status
  expect(await post('/api/processes/OrderProcess/resume', { Reason: 'it works' })).toBe(409)
  expect(await post('/api/processes/OrderProcess/pause', { Reason: 'maintenance' })).toBe(204)
  await announcements(1)
  // No token-service runs, so the console does not know whether it has created the link.
  expect(await post('/api/connect-links', { Hours: 1 })).toBe(504)
  await announcements(2)
  await console.request('/api/session', { method: 'DELETE', cookie })
  await expect(announcements(3)).rejects.toThrow('signed_out')
})
