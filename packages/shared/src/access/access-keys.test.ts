import { describe, expect, it } from 'vitest'
import { Secret } from '../secrets/secret.ts'
import { AccessKeys, digestOf } from './access-keys.ts'
import type { KeyEntry } from './key-list.ts'
import { SCOPES } from './scope.ts'

const SERVICE_KEY = 's'.repeat(32)
const ERP_KEY = 'e'.repeat(32)
const erp: KeyEntry = {
  id: 'erp',
  sha256: digestOf(ERP_KEY),
  scopes: ['gateway:read', 'transactions:queue'],
  realms: ['123', 'test-*'],
  processes: ['OrderProcess'],
}

function open(entries: readonly KeyEntry[] = [erp], now = { ms: 0 }) {
  const keys = new AccessKeys([new Secret(SERVICE_KEY)], { now: () => now.ms })
  keys.replaceList(entries)
  return { keys, now, caller: () => keys.identify(`Bearer ${ERP_KEY}`) }
}

describe('the class AccessKeys', () => {
  it('a service key has every scope except act-for, for all realms and processes', () => {
    const caller = open().keys.identify(`Bearer ${SERVICE_KEY}`)
    expect(SCOPES.filter((scope) => !caller?.has(scope))).toEqual(['act-for'])
    expect(caller?.mayUseRealm('9341453908059889')).toBe(true)
    expect(caller?.mayUseProcess('InvoiceExport')).toBe(true)
    expect(caller?.name).toBe(`key ${digestOf(SERVICE_KEY).slice(0, 8)}`)
  })

  it('a key of the key file has the scopes, realms and processes of its entry', () => {
    const caller = open().caller()
    expect(SCOPES.filter((scope) => caller?.has(scope))).toEqual(erp.scopes)
    expect(['123', 'test-1', 'test-'].every((realm) => caller?.mayUseRealm(realm))).toBe(true)
    expect(['1234', '12', 'test', 'Test-1', ''].some((realm) => caller?.mayUseRealm(realm))).toBe(
      false,
    )
    expect(caller?.mayUseProcess('OrderProcess')).toBe(true)
    expect(caller?.mayUseProcess('OrderProcess2')).toBe(false)
    expect(caller?.name).toBe('key erp')
  })

  it('a key that is removed from the key file is rejected immediately, even if an earlier request used it', () => {
    const { keys, caller } = open()
    expect(caller()).not.toBeNull()
    keys.replaceList([])
    expect(caller()).toBeNull()
    expect(keys.identify(`Bearer ${SERVICE_KEY}`)).not.toBeNull()
  })

  it('a key whose scopes are changed in the key file has the new scopes immediately', () => {
    const { keys, caller } = open()
    expect(caller()?.has('gateway:write')).toBe(false)
    keys.replaceList([{ ...erp, scopes: ['gateway:write'] }])
    expect(caller()?.has('gateway:write')).toBe(true)
  })

  it('a key is rejected from the time at which it expires', () => {
    const expires = '2027-01-31T12:00:00+01:00'
    const { caller, now } = open([{ ...erp, expires }])
    now.ms = Date.parse(expires) - 1
    expect(caller()).not.toBeNull()
    now.ms += 1
    expect(caller()).toBeNull()
  })

  it.each(['Bearer  ', 'bearer   ', 'BEARER '])(
    'a key is read after the scheme "%s", in any case and with several spaces behind it',
    (scheme) => {
      expect(open().keys.identify(`${scheme}${SERVICE_KEY}`)).not.toBeNull()
    },
  )

  it.each(['Bearer\t', 'Bearer', `Bearer ${' '.repeat(64)}`, 'Basic '])(
    'a key is not read after %j',
    (scheme) => {
      expect(open().keys.identify(`${scheme}${SERVICE_KEY}`)).toBeNull()
    },
  )

  it('the digest of a key is not accepted as a key', () => {
    expect(open().keys.identify(`Bearer ${erp.sha256}`)).toBeNull()
  })

  it('a service key keeps all its scopes even if an entry in the key file contains the same key with fewer scopes', () => {
    const { keys } = open([{ ...erp, sha256: digestOf(SERVICE_KEY), scopes: ['gateway:read'] }])
    expect(keys.identify(`Bearer ${SERVICE_KEY}`)?.has('custody:transfer')).toBe(true)
  })

  it('a caller that acts for a person is logged together with the name of the person', () => {
    expect(open().caller()?.actingFor('ada@example.com').name).toBe('key erp for ada@example.com')
  })
})
