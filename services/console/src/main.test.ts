import { fileURLToPath } from 'node:url'
import {
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { afterEach, describe, expect, it } from 'vitest'

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url))

describe('the process of the console', () => {
  let started: StartedProcess

  const start = (env: Readonly<Record<string, string>>): StartedProcess =>
    (started = startProcess([MAIN], { env: { PORT: '0', ...env } }))
  afterEach(() => started.stop('SIGKILL'))

  it('the console reports a missing SIGN_IN together with every invalid setting in one message that shows no values, and exits with code 1', async () => {
    const { code, stderr } = await start({
      PORT: '7221abc',
      OPERATOR_API_KEY: 'short-one',
      CONSOLE_URL: 'http://hidden.example.com',
      COORDINATOR_URL: 'ftp://hidden/',
    }).ended
    expect(code).toBe(1)
    expect(stderr).toMatch(/^console: The settings are not usable:\n/)
    for (const name of ['PORT', 'OPERATOR_API_KEY', 'CONSOLE_URL', 'COORDINATOR_URL', 'SIGN_IN'])
      expect(stderr).toMatch(new RegExp(`^  ${name}:`, 'm'))
    for (const value of ['7221abc', 'short-one', 'hidden']) expect(stderr).not.toContain(value)
  })

  it('the console reports missing settings of every way to sign in together with an invalid setting', async () => {
    const { code, stderr } = await start({ SIGN_IN: 'password,oidc', SESSION_HOURS: '0' }).ended
    expect(code).toBe(1)
    for (const name of [
      'SESSION_HOURS',
      'OPERATOR_API_KEY',
      'USERS_FILE',
      'OIDC_ISSUER',
      'OIDC_CLIENT_ID',
      'OIDC_CLIENT_SECRET',
      'OIDC_OPERATORS',
    ])
      expect(stderr).toMatch(new RegExp(`^  ${name}:`, 'm'))
  })
})
