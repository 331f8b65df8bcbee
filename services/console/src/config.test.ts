import { describe, expect, it } from 'vitest'
import { readConfig } from './config.ts'

const KEY = 'a-service-key-of-the-console-tests-0123456789'
const problemsOf = (env: Readonly<Record<string, string>>): string => {
  try {
    readConfig({ SERVICE_API_KEY: KEY, ...env })
  } catch (error) {
    return (error as Error).message
  }
  return ''
}

describe('the settings of the console', () => {
  it('the console does not start without a way to sign in', () => {
    expect(problemsOf({})).toContain('SIGN_IN: is missing')
    expect(problemsOf({ SIGN_IN: 'none' })).toContain('SIGN_IN')
  })

  it('the console accepts plain http for loopback addresses only', () => {
    const problems = (CONSOLE_URL: string) => problemsOf({ SIGN_IN: 'link', CONSOLE_URL })
    expect(problems('http://console.example.com')).toContain('CONSOLE_URL: must be https')
    expect(problems('http://127.0.0.1.example.com')).toContain('CONSOLE_URL: must be https')
    for (const url of ['https://console.example.com', 'http://127.0.0.1:7221', 'http://[::1]:7221'])
      expect(problems(url)).toBe('')
  })

  it('the console reports a setting with a wrong value only once', () => {
    expect(problemsOf({ SIGN_IN: 'link', SERVICE_API_KEY: 'short' })).not.toContain('OPERATOR')
    const env = { SIGN_IN: 'oidc', OIDC_ISSUER: 'login', OIDC_CLIENT_SECRET_FILE: '/none' }
    const problems = problemsOf({ ...env, OIDC_VIEWERS: 'everybody' })
    expect(problems.match(/OIDC_\w+(?=:)/g)?.toSorted()).toEqual([
      'OIDC_CLIENT_ID',
      'OIDC_CLIENT_SECRET_FILE',
      'OIDC_ISSUER',
      'OIDC_VIEWERS',
    ])
  })

  it('the console needs a key for its requests to the services: OPERATOR_API_KEY or one of the service keys', () => {
    const env = { SIGN_IN: 'link', SERVICE_API_KEY: '' }
    expect(problemsOf(env)).toContain('OPERATOR_API_KEY: is needed')
    expect(problemsOf({ ...env, OPERATOR_API_KEY: KEY })).toBe('')
  })

  it('the console needs a valid users file for the password sign-in, and does not show the content of an invalid file', () => {
    expect(problemsOf({ SIGN_IN: 'password' })).toContain('USERS_FILE: is needed')
    expect(problemsOf({ SIGN_IN: 'password', USERS_FILE: '/none' })).toContain('(ENOENT)')
    expect(problemsOf({ SIGN_IN: 'password', USERS_FILE: import.meta.filename })).toMatch(
      /USERS_FILE: line 1 is not name:role:scrypt\S+$/,
    )
  })

  it('the console needs settings for the sign-in at an OpenID provider, and at least one person who may sign in', () => {
    const problems = problemsOf({ SIGN_IN: 'oidc' })
    for (const name of ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_CLIENT_SECRET', 'OIDC_OPERATORS'])
      expect(problems).toContain(`${name}: is needed`)
    const env = { SIGN_IN: 'oidc', OIDC_CLIENT_ID: 'id', OIDC_CLIENT_SECRET: 'secret' }
    const issuer = { ...env, OIDC_ISSUER: 'http://login.example.com' }
    expect(problemsOf({ ...issuer, OIDC_VIEWERS: 'everybody' })).toContain('OIDC_VIEWERS: must be')
    expect(problemsOf({ ...issuer, OIDC_VIEWERS: 'group:all' })).toContain('must be https')
    const https = { ...env, OIDC_ISSUER: 'https://login.example.com/' }
    expect(problemsOf({ ...https, OIDC_VIEWERS: 'group:all, ada@example.com' })).toBe('')
  })
})
