import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url))
const SECRET = 'a-client-secret-of-nobody'

describe('the process of the sandbox provider', () => {
  let child: ChildProcess
  let written = ''

  const start = (env: Readonly<Record<string, string>>): Promise<[number | null]> => {
    written = ''
    child = spawn(process.execPath, [MAIN], { env: { ...env, PORT: env['PORT'] ?? '0' } })
    child.stdout?.on('data', (data: Buffer) => (written += data.toString()))
    child.stderr?.on('data', (data: Buffer) => (written += data.toString()))
    return once(child, 'close') as Promise<[number | null]>
  }
  afterEach(() => void child.kill('SIGKILL'))

  it('names every wrong setting in one message without values, and exits with 1', async () => {
    const [code] = await start({
      PORT: 'not-a-port',
      LOG_LEVEL: 'loud',
      REDIRECT: 'ftp://x/,http://ok/',
      BASE_URL: 'http://user:hidden@host/',
      PERSONALITY: 'difficult',
      CLIENT_SECRET: SECRET,
    })
    expect(code).toBe(1)
    expect(written).toMatch(/^sandbox-provider: The settings are not usable:\n/)
    for (const name of ['PORT', 'LOG_LEVEL', 'REDIRECT', 'BASE_URL', 'CLIENT_ID', 'PERSONALITY']) {
      expect(written).toMatch(new RegExp(`^  ${name}[.:]`, 'm'))
    }
    for (const value of ['not-a-port', 'loud', 'ftp:', 'hidden', 'difficult', SECRET]) {
      expect(written).not.toContain(value)
    }
  })

  it('reports that its port is in use, and exits with 1', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as { port: number }
    const [code] = await start({ PORT: String(port), CLIENT_ID: 'a', CLIENT_SECRET: SECRET })
    server.close()
    expect(code).toBe(1)
    expect(written).toContain('is taken by another process')
  })

  it('serves until SIGTERM, exits with 0, and logs no code, token or secret', async () => {
    const gone = start({ CLIENT_ID: 'app', CLIENT_SECRET: SECRET })
    const url = await listening()
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
    child.kill('SIGTERM')
    expect(await gone).toEqual([0, null])
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
      expect(written).not.toContain(secret)
    }
  })

  async function listening(): Promise<string> {
    for (;;) {
      const url = /"url":"([^"]+)"/.exec(written)?.[1]
      if (url !== undefined) return url
      await once(child.stdout ?? child, 'data')
    }
  }
})
