import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { userLine } from '@integration-host/shared/access/user-line'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ConsoleFixture, startConsoleFixture } from '../../test-support/console-fixture.ts'
import { type FakeService, startFakeService } from '../../test-support/fake-service.ts'

const PASSWORD = 'a long password'

describe('the routes of runs, and the disconnection of a company', () => {
  let tokenService: FakeService
  let revocation: string
  let folder: string
  let usersFile: string

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'console-users-'))
    usersFile = join(folder, 'users')
    await writeFile(usersFile, await userLine('vera', 'viewer', PASSWORD))
    tokenService = await startFakeService(({ method }) =>
      method === 'DELETE'
        ? { status: 204, body: '', headers: { Revocation: revocation } }
        : undefined,
    )
  })
  afterAll(async () => {
    await tokenService?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true })
  })

  it.each([
    ['confirmed', true],
    ['unconfirmed', false],
  ])(
    'when a person disconnects a company, the console reports whether the revocation at the provider is confirmed: %s',
    async (header, Revoked) => {
      await using console = await startConsoleFixture({ TOKEN_SERVICE_URL: tokenService.url })
      const cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
      revocation = header
      const response = await console.request('/api/companies/42/disconnect', {
        method: 'POST',
        cookie,
        body: JSON.stringify({ Version: 3, Reason: 'the customer has left' }),
      })
      expect(await response.json()).toEqual({ Revoked })
      const removal = tokenService.requests.findLast(({ method }) => method === 'DELETE')
      expect(JSON.parse(removal?.body ?? '')).toEqual({ Reason: 'the customer has left' })
    },
  )

  it.each(['refresh', 'disconnect'])(
    'the action %s on a company without a reason is rejected, and nothing is sent to token-service',
    async (action) => {
      await using console = await startConsoleFixture({ TOKEN_SERVICE_URL: tokenService.url })
      const cookie = await console.signIn({ Link: console.signInLink().split('#')[1] })
      const sent = tokenService.requests.length
      const body = JSON.stringify({ Version: 3 })
      const options = { method: 'POST', cookie, body }
      expect((await console.request(`/api/companies/42/${action}`, options)).status).toBe(400)
      const others = tokenService.requests.slice(sent).filter(({ method }) => method !== 'GET')
      expect(others).toEqual([])
    },
  )

  it.each([
    ['off', 403, false],
    ['on', 503, true],
  ])(
    'with VIEWER_SEES_DATA=%s, a viewer who requests the data of a run gets %i while the coordinator is unavailable',
    async (setting, status, SeesData) => {
      await using console: ConsoleFixture = await startConsoleFixture({
        SIGN_IN: 'password',
        USERS_FILE: usersFile,
        VIEWER_SEES_DATA: setting,
      })
      const cookie = await console.signIn({ User: 'vera', Password: PASSWORD })
      const response = await console.request('/api/runs/OrderProcess/66/data', { cookie })
      expect(response.status).toBe(status)
      const text = '/api/runs/OrderProcess/66/text?of=initial'
      expect((await console.request(text, { cookie })).status).toBe(status)
      const session = await console.request('/api/session', { cookie })
      expect(await session.json()).toMatchObject({ SeesData, Role: 'viewer', TracesUrl: null })
    },
  )
})
