import { describe, expect, it } from 'vitest'
import { digestOf, parseKeyList, keyName } from './key-list.ts'

const sha256 = digestOf('ihk_'.padEnd(40, 'k'))
const key = { id: 'erp', sha256, scopes: ['gateway:read'], realms: ['*'], processes: ['*'] }
const faultsOf = (...keys: unknown[]) => parseKeyList(JSON.stringify(keys)).faults

describe('parseKeyList()', () => {
  it('a key file is a JSON list of keys, with or without a byte order mark', () => {
    expect(parseKeyList(`\uFEFF${JSON.stringify([key])}`)).toEqual({ list: [key], faults: [] })
    expect(parseKeyList('[]')).toEqual({ list: [], faults: [] })
  })

  it('if an entry of the key file names neither realms nor processes, its key is not allowed to use any of them', () => {
    const { id, scopes } = key
    expect(parseKeyList(JSON.stringify([{ id, sha256, scopes }])).list).toEqual([
      { id, sha256, scopes, realms: [], processes: [] },
    ])
  })

  it.each<[string, object, string]>([
    ['an unknown member', { expire: '2027-01-01T00:00:00Z' }, 'unknown member "expire"'],
    ['an unknown scope', { scopes: ['gateway:all'] }, 'scopes.0: must be one of gateway:read'],
    ['no scope', { scopes: [] }, 'scopes: must name a scope'],
    ['a digest that is too short', { sha256: 'abc' }, 'sha256: must be the SHA-256'],
    ['a digest in upper case', { sha256: sha256.toUpperCase() }, 'sha256: must be the SHA-256'],
    ['an id with a space', { id: 'the erp' }, 'id: must be 1-31'],
    ['a wildcard inside of a pattern', { realms: ['a*b'] }, 'realms.0: must be a name'],
    ['two wildcards', { processes: ['a**'] }, 'processes.0: must be a name'],
    ['an empty pattern', { realms: [''] }, 'realms.0: must be a name'],
    ['a date without a time', { expires: '2027-01-31' }, 'expires: must be a time'],
    ['a time without an offset', { expires: '2027-01-31T00:00:00' }, 'expires: must be a time'],
  ])('a key file with %s is not valid, and the fault names the key', (_, change, fault) => {
    const position = 'id' in change ? 'key 1: ' : 'key 1 (erp): '
    expect(faultsOf({ ...key, ...change })).toEqual([expect.stringContaining(position + fault)])
  })

  it('the report on an invalid key file contains every fault of the file', () => {
    expect(faultsOf({ ...key, scopes: ['x'] }, key, { ...key, sha256: 'y' }, 7)).toHaveLength(3)
  })

  it('a key file is not valid if two of its keys have the same id or the same digest', () => {
    expect(faultsOf(key, key)).toEqual([
      'key 2 (erp): id is that of an earlier key',
      'key 2 (erp): sha256 is that of an earlier key',
    ])
  })

  it.each([
    ['', 'is not JSON'],
    ['{', 'is not JSON'],
    ['{}', 'must be a list of keys'],
    ['null', 'must be a list of keys'],
    [`${'['.repeat(2_000)}${']'.repeat(2_000)}`, 'key 1: '],
  ])('the key file content %j is reported as a fault', (text, fault) => {
    expect(parseKeyList(text).faults).toEqual([expect.stringContaining(fault)])
  })

  it('the report of a fault contains no value of the key file except the ids of keys', () => {
    const secret = 'ihk_a-key-that-was-entered-in-place-of-its-digest'
    const faults = faultsOf({
      ...key,
      id: secret,
      sha256: secret,
      scopes: [secret],
      realms: [`${secret}*x`],
      expires: secret,
    })
    expect(faults).toHaveLength(5)
    expect(faults.join('\n')).not.toContain('ihk_')
  })
})

it.each([
  ['a4f7a2af', 'SERVICE_API_KEY (a4f7a2af)'],
  ['operator', 'operator'],
  ['ada@example.com', 'ada@example.com'],
  ['', ''],
])('the key %j is named %j', (id, name) => expect(keyName(id)).toBe(name))
