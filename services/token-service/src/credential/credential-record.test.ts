import { describe, expect, it } from 'vitest'
import { DecryptionError, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { grantOf, START } from '../../test-support/grants.ts'
import {
  openCredential,
  openForList,
  openGrantSecrets,
  resealed,
  sealFault,
  sealGrant,
  type StoredFields,
} from './credential-record.ts'
import { faultOf } from './fault.ts'

const keyText = (id: string, text: string): string =>
  `${id}:${Buffer.alloc(32, text).toString('base64')}`
const keys = parseKeyRing(new Secret(keyText('k1', 'a fixed key')))

/**
 * A record that release 0.1.0 (commit f646b69) stored, encrypted with the keys of this file. Its encrypted secrets do
 * not authenticate the plain fields.
 */
const earlierRecord: StoredFields = {
  Name: 'ACC-1',
  Authenticator: '1.k1.-2G1yLjc1Ztu5Bqc.08Xu0obTLiALqBBPvu1K3SQVV9b6AJv2ebk',
  Expiry: '2026-01-01T01:00:00.000Z',
  RefreshToken: '1.k1.oCDUJTA0rMtWaVMf.qyZ7iHSgApOY4gb0OzEpn8sLRbZhXKEPQOCp',
  StoreA: '1.k1.-KTj1zSBIENxrvCS.eDqfDZ4LFkrZ1nBAf78FR9W_AJNCZQ',
  Environment: '1',
  Version: '3',
  Status: 'faulted',
  RefreshedAt: '2026-01-01T00:00:00.000Z',
  IdleExpiry: '2026-04-11T00:00:00.000Z',
  HardExpiry: '',
  ExpiryNotice: '',
  Previous: '1.k1.U5pdVrYeL4_-aM3W.kcXMX9RK8kjwwXvemWkyh9ghhwaDMYhOj_jMKQ',
  PreviousRetiredAt: '2026-01-01T00:00:00.000Z',
  Fence: '7',
  PutId: '',
  Fault:
    '{"Code":"invalid_grant","Message":"Couldn\'t refresh token for realm ACC-1, {\\"error\\":\\"invalid_grant\\"}","At":"2026-01-01T00:00:00.000Z","Attempts":1,"TraceId":"trace-1","Remedy":"Wait: the provider rejected the refresh token, which it may also do in an outage, so the token is tried again at NextTryAt. If the owner of the company disconnected the application, or another program uses this grant, reconnect the company.","Final":false,"Rejections":1,"NextTryAt":"2026-01-01T00:05:00.000Z"}',
  Attempts: '1',
  NextTryAt: '2026-01-01T00:05:00.000Z',
}

const NAME = 'ACC-1'
const grant = grantOf(NAME, 'one', {
  hardExpiresAt: START + 86_400_000,
  previous: { token: new Secret('refresh zero'), retiredAt: START },
})
const fault = faultOf(
  NAME,
  'invalid_grant',
  { body: '{}', traceId: 'trace-1' },
  { at: START, attempts: 1 },
)
const record: StoredFields = sealGrant(keys, grant, 2)
const faulted: StoredFields = { ...record, ...sealFault(keys, NAME, 2, fault), Attempts: '1' }

describe('credential record of this release', () => {
  it('a credential record of this release is decrypted to the original values', () => {
    expect(openCredential(keys, NAME, faulted)).toMatchObject({
      name: NAME,
      version: 2,
      expiresAt: grant.expiresAt,
      fault,
      attempts: 1,
    })
    expect(openCredential(keys, NAME, record).fault).toBeNull()
    const secrets = openGrantSecrets(keys, NAME, record)
    expect([secrets.refreshToken?.reveal(), secrets.previous?.token.reveal()]).toEqual([
      'refresh one',
      'refresh zero',
    ])
  })

  it('a credential record is rejected under another name, with or without secrets', () => {
    const withoutSecrets = { ...record, Authenticator: '', RefreshToken: '' }
    for (const copied of [record, faulted, withoutSecrets])
      expect(() => openCredential(keys, 'ACC-2', copied)).toThrow(DecryptionError)
    expect(() => openGrantSecrets(keys, 'ACC-2', record)).toThrow(DecryptionError)
    // The test also changes the name in the record, as an attacker could.
    expect(() => openCredential(keys, 'ACC-2', { ...record, Name: 'ACC-2' })).toThrow(
      DecryptionError,
    )
  })

  it.each([
    ['Environment', '2'],
    ['Expiry', '2030-01-01T00:00:00.000Z'],
    ['RefreshedAt', '2030-01-01T00:00:00.000Z'],
    ['IdleExpiry', '2030-01-01T00:00:00.000Z'],
    ['HardExpiry', ''],
    ['ExpiryNotice', '7'],
    ['Version', '3'],
    ['Status', 'faulted'],
  ])('a credential record cannot be decrypted after its field %s was changed', (field, value) => {
    const changed = { ...record, [field]: value }
    expect(() => openCredential(keys, NAME, changed)).toThrow(DecryptionError)
    // A changed record must also be rejected if it has no access token. The envelope of the refresh token then
    // authenticates the plain fields.
    expect(() => openCredential(keys, NAME, { ...changed, Authenticator: '' })).toThrow(
      DecryptionError,
    )
  })

  it('the previous refresh token of a credential record is ignored if PreviousRetiredAt was changed', () => {
    const changed = { ...record, PreviousRetiredAt: '2030-01-01T00:00:00.000Z' }
    expect(() => openGrantSecrets(keys, NAME, changed)).toThrow(DecryptionError)
  })

  it('a credential record is rejected if its fault code is one that this service never stores', () => {
    const Fault = JSON.stringify({ ...fault, Code: 'send_your_password' })
    expect(() => openCredential(keys, NAME, { ...faulted, Fault })).toThrow(DecryptionError)
    expect(() => openCredential(keys, NAME, { ...faulted, Fault: 'not JSON' })).toThrow(
      DecryptionError,
    )
  })

  it.each([
    ['without its seal', { FaultSeal: '' }],
    ['with the seal of another version', sealFault(keys, NAME, 1, fault)],
    [
      'with the seal of another text',
      { FaultSeal: sealFault(keys, NAME, 2, { ...fault, Attempts: 2 }).FaultSeal },
    ],
  ])('a fault %s still applies, but its text is hidden', (_, changes) => {
    const Fault = JSON.stringify({
      ...fault,
      Message: 'phishing',
      Remedy: 'phishing',
      TraceId: 'x',
    })
    const opened = openCredential(keys, NAME, { ...faulted, ...changes, Fault })
    expect(opened.fault).toMatchObject({ Code: 'invalid_grant', Final: true })
    expect(opened.fault?.Message).toContain('not authenticated')
    expect(JSON.stringify(opened.fault)).not.toMatch(/phishing|TraceId/)
    expect(opened.accessToken?.reveal()).toBe('access one')
  })

  it('a list shows a record that cannot be decrypted, with the fault record_rejected and without stored texts', () => {
    const listed = openForList(keys, NAME, { ...faulted, Environment: 'phishing' })
    expect(listed).toMatchObject({ name: NAME, version: 2, fault: { Code: 'record_rejected' } })
    expect(JSON.stringify(listed)).not.toContain('phishing')
    expect(openForList(keys, NAME, faulted).fault).toEqual(fault)
  })

  it('the fields and the fault of a credential record stay authenticated after re-encryption with a new key', () => {
    const both = parseKeyRing(new Secret(`${keyText('k2', 'new')},${keyText('k1', 'a fixed key')}`))
    const only = parseKeyRing(new Secret(keyText('k2', 'new')))
    const renewed = { ...faulted, ...resealed(both, NAME, faulted) }
    expect(openCredential(only, NAME, renewed).fault).toEqual(fault)
    expect(openGrantSecrets(only, NAME, renewed).refreshToken?.reveal()).toBe('refresh one')
    expect(() => openCredential(only, NAME, { ...renewed, Expiry: '' })).toThrow(DecryptionError)
    expect(resealed(both, NAME, renewed)).toBeNull()
    const changed = { ...faulted, Expiry: '2030-01-01T00:00:00.000Z' }
    expect(() => resealed(both, NAME, changed)).toThrow(DecryptionError)
  })

  it.each<[string, StoredFields]>([
    ['the seal of another fault text', { Fault: JSON.stringify({ ...fault, Attempts: 2 }) }],
    ['a seal and no fault', { Fault: '', Status: 'active' }],
  ])('a credential record with %s is re-encrypted in one pass', (_, changes) => {
    const both = parseKeyRing(new Secret(`${keyText('k2', 'new')},${keyText('k1', 'a fixed key')}`))
    const left = { ...faulted, ...changes }
    const renewed = { ...left, ...resealed(both, NAME, left) }
    expect(resealed(both, NAME, renewed)).toBeNull()
    expect(openCredential(both, NAME, renewed).fault).toEqual(
      openCredential(both, NAME, left).fault,
    )
  })
})

describe('credential record of release 0.1.0', () => {
  it('the secrets and the fault text of a record of release 0.1.0 can be read', () => {
    const opened = openCredential(keys, NAME, earlierRecord)
    expect(opened).toMatchObject({ name: NAME, version: 3, expiresAt: START + 3_600_000 })
    expect(opened.accessToken?.reveal()).toBe('access one')
    expect(opened.fault?.Message).toBe(
      `Couldn't refresh token for realm ACC-1, {"error":"invalid_grant"}`,
    )
    const secrets = openGrantSecrets(keys, NAME, earlierRecord)
    expect([
      secrets.refreshToken?.reveal(),
      secrets.idToken?.reveal(),
      secrets.previous?.token.reveal(),
    ]).toEqual(['refresh one', 'id one', 'refresh zero'])
  })

  it('a record of release 0.1.0 is rejected under another name', () => {
    expect(() => openCredential(keys, 'ACC-2', earlierRecord)).toThrow(DecryptionError)
    expect(() => openCredential(keys, 'ACC-2', { ...earlierRecord, Name: 'ACC-2' })).toThrow(
      DecryptionError,
    )
  })

  it('the fields and the fault of a record of release 0.1.0 are authenticated after re-encryption with a new key', () => {
    const both = parseKeyRing(new Secret(`${keyText('k2', 'new')},${keyText('k1', 'a fixed key')}`))
    const renewed = { ...earlierRecord, ...resealed(both, NAME, earlierRecord) }
    expect(openCredential(both, NAME, renewed).fault?.Message).toContain('invalid_grant')
    expect(() => openCredential(both, NAME, { ...renewed, Environment: '2' })).toThrow(
      DecryptionError,
    )
  })

  it('release 0.1.0, which does not authenticate plain fields, can decrypt secrets that this release has encrypted', () => {
    // Release 0.1.0 bound an encrypted value only to its credential name, field and version (as additional authenticated
    // data), and to none of the plain fields.
    for (const field of ['Authenticator', 'RefreshToken', 'StoreA', 'Previous'])
      expect(() => keys.open(record[field] ?? '', { name: NAME, field, version: 2 })).not.toThrow()
  })

  it('a record is accepted if release 0.1.0 has stored a fault beside a token pair of this release', () => {
    const Fault = JSON.stringify({ ...fault, Code: 'provider_unavailable', Final: undefined })
    const opened = openCredential(keys, NAME, { ...record, Fault, Status: 'faulted' })
    expect(opened.accessToken?.reveal()).toBe('access one')
    expect(opened.fault).toMatchObject({ Code: 'provider_unavailable', Attempts: 1 })
  })

  it('a record is accepted if release 0.1.0 has replaced the token pair and left the seal of an earlier fault', () => {
    const { FaultSeal } = sealFault(keys, NAME, 2, fault)
    expect(openCredential(keys, NAME, { ...earlierRecord, FaultSeal }).fault?.Message).toContain(
      'invalid_grant',
    )
    const healthy = { ...earlierRecord, Fault: '', Status: 'active', FaultSeal }
    expect(openCredential(keys, NAME, healthy).fault).toBeNull()
  })
})
