import { describe, expect, it } from 'vitest'
import { ConfigError } from '@integration-host/shared/process/config'
import { readConfig, readEmbeddedConfig } from './config.ts'

const key = `k1:${Buffer.alloc(32, 1).toString('base64')}`
const good = {
  SERVICE_API_KEY: 'a-service-key-0123456789-0123456789',
  DISCOVERY_URL: 'https://developer.example.com/.well-known/openid_sandbox_configuration/',
  CLIENT_ID: 'id',
  CLIENT_SECRET: 'one, two',
  REDIRECT: 'https://tokens.example.com/callback',
  CREDENTIAL_KEYS: key,
  REDIS_URL: 'redis://localhost:6379',
  AMQP_URL: 'amqp://localhost',
}
const problems = (env: Record<string, string>): string => {
  try {
    readConfig(env)
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    return (error as Error).message
  }
  return ''
}

describe('the settings of token-service', () => {
  it('AUDIT_TO needs a known sink, and its receiver', () => {
    expect(readConfig(good).AUDIT_SYSLOG.href).toBe('udp://127.0.0.1:514')
    expect(problems({ ...good, AUDIT_TO: 'file' })).toContain('AUDIT_TO')
    expect(problems({ ...good, AUDIT_TO: 'webhook' })).toContain('AUDIT_WEBHOOK_SECRET')
    for (const AUDIT_SYSLOG of ['127.0.0.1:514', 'http://syslog:80', 'tcp://syslog'])
      expect(problems({ ...good, AUDIT_TO: 'syslog', AUDIT_SYSLOG })).toContain('AUDIT_SYSLOG')
    const AUDIT_WEBHOOK_URL = 'https://siem.example.com/audit'
    const receiver = { ...good, AUDIT_TO: 'webhook', AUDIT_WEBHOOK_URL }
    for (const AUDIT_WEBHOOK_SECRET of ['short', `two lines\n${'x'.repeat(16)}`]) {
      const found = problems({ ...receiver, AUDIT_WEBHOOK_SECRET })
      expect(found).toContain('AUDIT_WEBHOOK_SECRET')
      expect(found).not.toContain(AUDIT_WEBHOOK_SECRET)
    }
    const settings = { ...receiver, AUDIT_WEBHOOK_SECRET: 'x'.repeat(16) }
    expect(readConfig(settings).AUDIT_WEBHOOK_URL).toBe(AUDIT_WEBHOOK_URL)
  })

  it('the settings keep URLs as written and client secrets in order, and use the documented defaults', () => {
    const config = readConfig(good)
    expect(config).toMatchObject({
      HOST: '127.0.0.1',
      PORT: 7217,
      DISCOVERY_URL: good.DISCOVERY_URL,
      SCOPE: 'openid com.intuit.quickbooks.accounting',
      REFRESH_AHEAD_SECONDS: 600,
      REDIS_KEY_PREFIX: '',
    })
    expect(config.CLIENT_SECRET.map((secret) => secret.reveal())).toEqual(['one', 'two'])
    expect(config.CREDENTIAL_KEYS.activeKeyId).toBe('k1')
    expect(JSON.stringify(config)).not.toContain('one, two')
  })

  it('an embedded token-service requires no address of Redis or RabbitMQ', () => {
    const { REDIS_URL: _, AMQP_URL: __, ...embedded } = good
    expect(readEmbeddedConfig(embedded).PORT).toBe(7217)
  })

  it('reading the settings throws one error that names every missing setting', () => {
    const message = problems({})
    for (const name of Object.keys(good)) expect(message).toContain(`${name}: is missing`)
  })

  it.each([
    ['DISCOVERY_URL', 'ftp://canary/x'],
    ['DISCOVERY_URL', 'canary'],
    ['REDIRECT', 'https://CANARY.example.com'],
    ['REDIRECT', 'https://canary.example.com/callback?x=1'],
    ['REDIRECT', 'https://canary:pw@example.com/callback'],
    ['CLIENT_SECRET', 'canary,,x'],
    ['CREDENTIAL_KEYS', 'k1:canary'],
    ['CREDENTIAL_KEYS', `${key},${key}`],
    ['CREDENTIAL_KEYS', `k1:${Buffer.alloc(31).toString('base64')}`],
    ['REFRESH_AHEAD_SECONDS', '-1'],
    ['REFRESH_AHEAD_SECONDS', '10m'],
    ['PORT', '7216canary'],
    ['SERVICE_API_KEY', 'canary'],
    ['REDIS_URL', 'http://canary'],
    ['REDIS_REPLICAS', 'canary'],
    ['REDIS_REPLICAS', '10'],
    ['AMQP_URL', 'canary'],
    ['RETURN_TO_ORIGINS', 'https://canary.example.com/path'],
  ])('an invalid %s is rejected with an error that does not contain the value', (name, value) => {
    const message = problems({ ...good, [name]: value })
    expect(message).toMatch(new RegExp(`^  ${name}(\\.0)?: `, 'm'))
    expect(message.toLowerCase()).not.toContain('canary')
  })
})
