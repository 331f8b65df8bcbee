import { randomBytes } from 'node:crypto'
import { createWebhooksFile } from '@integration-host/shared/test-support/webhook-receiver'
import { afterEach, describe, expect, it } from 'vitest'
import { readConfig } from '../../config.ts'

const entry = {
  url: 'https://hooks.example.com/hidden',
  secret: `whsec_${randomBytes(24).toString('base64')}`,
  events: ['transaction.failed'],
}
const opened: AsyncDisposable[] = []
afterEach(async () => {
  for (const file of opened.splice(0)) await file[Symbol.asyncDispose]()
})

async function settingsWith(content: readonly object[] | string, hosts = '127.0.0.1') {
  const file = await createWebhooksFile([])
  opened.push(file)
  await file.write(content)
  return {
    TRANSACTION_SOURCE: 'memory',
    AMQP_URL: 'amqp://localhost',
    SERVICE_API_KEY: 'k'.repeat(32),
    ...file.env,
    WEBHOOKS_ALLOWED_HOSTS: hosts,
  }
}

describe('the setting WEBHOOKS_FILE', () => {
  it('the coordinator accepts a valid WEBHOOKS_FILE, and has no receivers if the setting is unset', async () => {
    expect(readConfig(await settingsWith([entry])).WEBHOOKS_FILE?.text).toContain(entry.url)
    const { WEBHOOKS_FILE: _, ...others } = await settingsWith([])
    expect(readConfig(others).WEBHOOKS_FILE).toBeUndefined()
  })

  it('the coordinator does not start with a WEBHOOKS_FILE that does not exist', async () => {
    const settings = { ...(await settingsWith([])), WEBHOOKS_FILE: '/does/not/exist' }
    expect(() => readConfig(settings)).toThrow(
      'The settings are not usable:\n  WEBHOOKS_FILE: the file cannot be read (ENOENT)',
    )
  })

  it('the coordinator reports every fault of an invalid WEBHOOKS_FILE in one message, without any value of the file', async () => {
    const settings = await settingsWith([
      { ...entry, events: ['hidden'] },
      { ...entry, url: 'http://hidden.example', secret: 'hidden' },
    ])
    let message = ''
    try {
      readConfig(settings)
    } catch (error) {
      message = (error as Error).message
    }
    expect(message.split('\n')).toEqual([
      'The settings are not usable:',
      expect.stringMatching(/^ {2}WEBHOOKS_FILE: entry 1: events: each must be one of /),
      expect.stringMatching(/^ {2}WEBHOOKS_FILE: entry 2: secret: must be whsec_/),
      '  WEBHOOKS_FILE: entry 2: url: must use https, unless WEBHOOKS_ALLOWED_HOSTS names the host',
    ])
    expect(message).not.toContain('hidden')
  })

  it('WEBHOOKS_ALLOWED_HOSTS allows hosts by their exact names, in upper or lower case', async () => {
    const list = [{ ...entry, url: 'http://Relay.Internal:8080/in' }]
    const settings = await settingsWith(list, 'other.internal, RELAY.internal')
    expect(() => readConfig(settings)).not.toThrow()
    for (const hosts of ['internal', 'relay.internal.example', 'elay.internal'])
      expect(() => readConfig({ ...settings, WEBHOOKS_ALLOWED_HOSTS: hosts })).toThrow(
        'must use https',
      )
    for (const hosts of ['https://relay.internal', 'a b', '*', ','])
      expect(() => readConfig({ ...settings, WEBHOOKS_ALLOWED_HOSTS: hosts })).toThrow(
        'WEBHOOKS_ALLOWED_HOSTS',
      )
  })
})
