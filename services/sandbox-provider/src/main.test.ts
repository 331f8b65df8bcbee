import { once } from 'node:events'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import {
  listeningUrl,
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, describe, expect, it } from 'vitest'

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url))
const SECRET = 'a-client-secret-of-nobody'

describe('the process of the sandbox provider', () => {
  let started: StartedProcess

  const start = (env: Readonly<Record<string, string>>): StartedProcess =>
    (started = startProcess([MAIN], { env: { PORT: '0', ...env } }))
  afterEach(() => started.stop('SIGKILL'))

  it('the sandbox provider reports every invalid setting in one message that shows no values, and exits with code 1', async () => {
    const { code, stderr: written } = await start({
      PORT: 'not-a-port',
      LOG_LEVEL: 'loud',
      REDIRECT: 'ftp://x/,http://ok/',
      BASE_URL: 'http://user:hidden@host/',
      PERSONALITY: 'difficult',
      CLIENT_SECRET: SECRET,
    }).ended
    expect(code).toBe(1)
    expect(written).toMatch(/^sandbox-provider: The settings are not usable:\n/)
    for (const name of ['PORT', 'LOG_LEVEL', 'REDIRECT', 'BASE_URL', 'CLIENT_ID', 'PERSONALITY']) {
      expect(written).toMatch(new RegExp(`^  ${name}[.:]`, 'm'))
    }
    for (const value of ['not-a-port', 'loud', 'ftp:', 'hidden', 'difficult', SECRET]) {
      expect(written).not.toContain(value)
    }
  })

  it('the sandbox provider exits with code 1 and reports that the port is in use', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as { port: number }
    const { code } = await start({ PORT: String(port), CLIENT_ID: 'a', CLIENT_SECRET: SECRET })
      .ended
    server.close()
    expect(code).toBe(1)
    expect(started.output()).toContain('is taken by another process')
  })

  it('the sandbox provider handles requests until SIGTERM, exits with code 0, and logs no authorization code, token or secret', async () => {
    const url = await listeningUrl(start({ CLIENT_ID: 'app', CLIENT_SECRET: SECRET }))
    const redirected = await fetch(
      `${url}/connect/oauth2?client_id=app&response_type=code&scope=openid&state=s&redirect_uri=http://localhost/&sandbox_company=1`,
      { redirect: 'manual' },
    )
    const code = new URL(redirected.headers.get('Location') ?? '').searchParams.get('code') ?? ''
    const response = await fetch(`${url}/oauth2/v1/tokens/bearer`, {
      method: 'POST',
      headers: { Authorization: `Basic ${Buffer.from(`app:${SECRET}`).toString('base64')}` },
      body: new URLSearchParams({
        grant_type: 'authorization_code',
        code,
        redirect_uri: 'http://localhost/',
      }),
    })
    const tokens = (await response.json()) as Record<string, string>
    expect(await started.stop('SIGTERM')).toBe(0)
    expect(response.status).toBe(200)
    const secrets = [
      SECRET,
      code,
      tokens['access_token'],
      tokens['refresh_token'],
      tokens['id_token'],
    ]
    for (const secret of secrets) {
      expect(secret).toMatch(/.{20}/)
      expect(started.output()).not.toContain(secret)
    }
  })
})
