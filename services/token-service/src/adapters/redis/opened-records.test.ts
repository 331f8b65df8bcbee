import { describe, expect, it } from 'vitest'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { grantOf } from '../../../test-support/grants.ts'
import { testKeys } from '../../../test-support/service-fixture.ts'
import { sealGrant, type StoredFields } from '../../credential/credential-record.ts'
import { createRecordOpener } from './opened-records.ts'

const NAME = 'ACC-1'
const FIELDS = [
  'Name',
  'Environment',
  'Expiry',
  'Version',
  'RefreshedAt',
  'IdleExpiry',
  'HardExpiry',
  'ExpiryNotice',
  'Status',
  'Authenticator',
  'RefreshToken',
]

/**
 * Returns the fields of a stored record, a function that opens records, and a function that returns how often a record
 * was decrypted.
 */
function fixture() {
  let decryptions = 0
  const ring = testKeys()
  const keys: KeyRing = {
    ...ring,
    openWithLabels(...input) {
      decryptions += 1
      return ring.openWithLabels(...input)
    },
  }
  const open = createRecordOpener(keys, (values) =>
    values[0] === null
      ? null
      : (Object.fromEntries(
          FIELDS.map((field, index) => [field, values[index] ?? '']),
        ) as StoredFields),
  )
  const valuesOf = (version: number): (string | null)[] => {
    const fields = sealGrant(ring, grantOf(NAME, `token-${version}`), version)
    return FIELDS.map((field) => fields[field] ?? null)
  }
  return { open, valuesOf, decryptions: () => decryptions }
}

describe('the cache of opened records', () => {
  it('a record that was decrypted is decrypted again only after it has changed', () => {
    const { open, valuesOf, decryptions } = fixture()
    const first = valuesOf(1)
    expect(open(NAME, first)).toBe(open(NAME, [...first]))
    expect(decryptions()).toBe(1)
    expect(open(NAME, valuesOf(2))?.version).toBe(2)
    expect(decryptions()).toBe(2)
  })

  it('a record whose plain fields were changed is rejected even if it had been decrypted before the change', () => {
    const { open, valuesOf } = fixture()
    const values = valuesOf(1)
    open(NAME, values)
    const changed = values.with(FIELDS.indexOf('Expiry'), '2099-01-01T00:00:00.000Z')
    expect(() => open(NAME, changed)).toThrow(DecryptionError)
    expect(open(NAME, values)?.version).toBe(1)
  })

  it('a record that is read under another name is rejected', () => {
    const { open, valuesOf } = fixture()
    const values = valuesOf(1)
    open(NAME, values)
    expect(() => open('ACC-2', values)).toThrow(DecryptionError)
  })

  it('the record opener returns null for a removed record', () => {
    const { open, valuesOf } = fixture()
    open(NAME, valuesOf(1))
    expect(
      open(
        NAME,
        Array.from(FIELDS, () => null),
      ),
    ).toBeNull()
  })
})
