import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { isPrivateLiteral } from '../adapters/http/private-addresses.ts'
import { parseReceivers } from './receivers.ts'

const secretOf = (length: number): string => `whsec_${randomBytes(length).toString('base64')}`
const secret = secretOf(32)
const url = 'https://hooks.example.com/in'
const valid = { url, secret, events: ['credential.faulted'] }
const rules = { allowedHosts: new Set(['relay.internal', '10.0.0.7']), isPrivateLiteral }
const faultsOf = (content: unknown) => parseReceivers(JSON.stringify(content), rules).faults

describe('the list of webhook receivers', () => {
  it('the id of a receiver contains its host, but not the rest of its URL', () => {
    const { list: receivers } = parseReceivers(JSON.stringify([valid]), rules)
    expect(receivers).toMatchObject([{ isAllowedByName: false }])
    expect(receivers?.[0]?.id).toMatch(/^hooks\.example\.com-[0-9a-f]{8}$/)
    expect(receivers?.[0]?.events).toEqual(new Set(['credential.faulted']))
    expect(Buffer.from(receivers?.[0]?.key.reveal() ?? '', 'base64')).toHaveLength(32)
    expect(JSON.stringify(receivers)).not.toContain(secret.slice(6))
  })

  it('an empty list of webhook receivers is valid', () => {
    expect(parseReceivers('\uFEFF[]', rules)).toEqual({ list: [], faults: [] })
  })

  it.each([
    ['nothing', ''],
    ['text', 'whsec_'],
    ['an incomplete list', '[{'],
  ])('a webhooks file that contains %s is rejected because it is not JSON', (_, text) => {
    expect(parseReceivers(text, rules)).toEqual({ list: null, faults: ['is not JSON'] })
  })

  it.each([
    ['an object', {}, 'must be a list'],
    ['a number as entry', [7], 'entry 1: '],
    ['null as entry', [null], 'entry 1: '],
    ['an unknown member', [{ ...valid, extra: 1 }], 'entry 1: unknown member "extra"'],
    ['no URL', [{ ...valid, url: undefined }], 'entry 1: url: must be a URL'],
    ['a relative URL', [{ ...valid, url: '/in' }], 'entry 1: url: must be an https URL'],
    [
      'another scheme',
      [{ ...valid, url: 'ftp://a.example' }],
      'entry 1: url: must be an https URL',
    ],
    ['plain HTTP', [{ ...valid, url: 'http://a.example' }], 'entry 1: url: must use https'],
    ['a password', [{ ...valid, url: 'https://a:b@a.example' }], 'entry 1: url: must not contain'],
    ['a fragment', [{ ...valid, url: `${url}#a` }], 'entry 1: url: must not have a fragment'],
    ['a URL of 3 KB', [{ ...valid, url: url + 'x'.repeat(3_000) }], 'entry 1: url: must have at'],
    ['localhost', [{ ...valid, url: 'https://localhost/' }], 'entry 1: url: is an address'],
    ['a loopback address', [{ ...valid, url: 'https://0x7f.1/' }], 'entry 1: url: is an address'],
    ['an IPv6 address', [{ ...valid, url: 'https://[::ffff:10.0.0.1]/' }], 'entry 1: url: is an'],
    ['the same URL twice', [valid, valid], 'entry 2: url: is that of an earlier entry'],
    ['no secret', [{ ...valid, secret: undefined }], 'entry 1: secret: must be a secret'],
    ['another prefix', [{ ...valid, secret: secret.slice(6) }], 'entry 1: secret: must be whsec_'],
    ['a short secret', [{ ...valid, secret: secretOf(23) }], 'entry 1: secret: must be whsec_'],
    ['a long secret', [{ ...valid, secret: secretOf(65) }], 'entry 1: secret: must be whsec_'],
    [
      'a made-up secret',
      [{ ...valid, secret: `whsec_${'A'.repeat(44)}` }],
      'entry 1: secret: must',
    ],
    ['other base64', [{ ...valid, secret: secret.replace(/.$/, '-') }], 'entry 1: secret: must be'],
    ['no events', [{ ...valid, events: [] }], 'entry 1: events: must name an event'],
    ['an unknown event', [{ ...valid, events: ['credential.refreshed'] }], 'entry 1: events: each'],
  ])('a list of webhook receivers with %s is not valid', (_, content, fault) => {
    const faults = faultsOf(content)
    expect(faults.length).toBeGreaterThan(0)
    expect(faults[0]).toContain(fault)
  })

  it('the list of webhook receivers reports every fault in one message, without any value of the file', () => {
    const faults = faultsOf([
      { url: 'https://u:hidden@a.example', secret: 'hidden', events: ['hidden'] },
      { ...valid, url: 'http://hidden.example', events: 'hidden' },
    ])
    expect(faults).toHaveLength(5)
    expect(faults.join()).not.toContain('hidden')
  })

  it('a receiver whose host the settings allow by name may have a private address and use plain HTTP', () => {
    const list = [
      { ...valid, url: 'http://relay.internal:8080/in' },
      { ...valid, url: 'http://10.0.0.7/in' },
    ]
    expect(parseReceivers(JSON.stringify(list), rules).list).toMatchObject([
      { isAllowedByName: true },
      { isAllowedByName: true },
    ])
  })
})
