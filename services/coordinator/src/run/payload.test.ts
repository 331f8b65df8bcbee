import { randomBytes } from 'node:crypto'
import { DecryptionError, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import type { Json } from './json-normalization.ts'
import { createPayloads, createRecentPayloads, type PayloadPlace, sealedWith } from './payload.ts'

const key = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const ring = (...keys: string[]) => parseKeyRing(new Secret(keys.join(',')))
const sealed = createPayloads(ring(key('k1')))
const plain = createPayloads(null)
const data: PayloadPlace = {
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 1,
  column: 'Data',
  step: 'order',
}
const initial: PayloadPlace = { ...data, column: 'InitialData', step: null }
const body: PayloadPlace = { ...data, column: 'ResponseBody' }
const values: Json[] = ['', 'x', 66, true, [], {}, { $sealed: 'x' }, { a: [{ b: 'ä\u{1F600}' }] }]

describe('a sealed (encrypted) payload', () => {
  it.each(values)(
    'a sealed payload does not reveal the value %j, and can be decrypted',
    (value) => {
      const stored = sealed.sealJson(value, initial)
      expect(Object.keys(stored as object)).toEqual(['$sealed'])
      expect(sealed.openJson(stored, initial)).toEqual(value)
      expect(sealedWith({ ...initial, stored })).toBe('k1')
    },
  )

  it('a sealed response body is stored as text, and can be decrypted', () => {
    const stored = sealed.sealText('a body', body)
    expect(stored).toMatch(/^\$sealed:1:/)
    expect(stored).not.toContain('a body')
    expect(sealed.openText(stored, body)).toBe('a body')
  })

  it('a sealed payload can be decrypted only for its transaction, column and step, in the same run and in later runs', () => {
    const stored = sealed.sealJson({ a: 1 }, data)
    for (const other of [
      { Process: 'Other' },
      { TransactionID: '67' },
      { ReplayID: 0 },
      { column: 'InitialData' as const },
      { step: 'report' },
    ])
      expect(() => sealed.openJson(stored, { ...data, ...other })).toThrow(DecryptionError)
    expect(sealed.openJson(stored, { ...data, ReplayID: 2 })).toEqual({ a: 1 })
  })

  it('a sealed payload cannot be decrypted if any of its characters or its ReplayID was changed', () => {
    const { $sealed: text } = sealed.sealJson('a secret', data) as { $sealed: string }
    expect(() => sealed.openJson({ $sealed: text.replace(/^1/, '0') }, data)).toThrow(
      DecryptionError,
    )
    for (const at of [text.length - 1, text.length - 20, 10]) {
      const other = text[at] === 'A' ? 'Q' : 'A'
      const changed = text.slice(0, at) + other + text.slice(at + 1)
      expect(() => sealed.openJson({ $sealed: changed }, data)).toThrow(DecryptionError)
    }
  })

  it('a sealed payload cannot be decrypted without its key', () => {
    const stored = sealed.sealJson('a secret', data)
    expect(() => plain.openJson(stored, data)).toThrow(DecryptionError)
    expect(() => createPayloads(ring(key('k2'))).openJson(stored, data)).toThrow('no key k1')
  })
})

describe('a payload in plain text', () => {
  it('a payload in plain text is returned unchanged, with and without keys', () => {
    for (const payloads of [plain, sealed]) {
      for (const value of values) expect(payloads.openJson(value, data)).toBe(value)
      expect(payloads.openText('$sealed:0:1.k1.x', body)).toBe('$sealed:0:1.k1.x')
    }
  })

  it('a payload is stored in plain text if there are no keys', () => {
    for (const value of values) expect(plain.sealJson(value, data)).toBe(value)
    expect(plain.sealText('a body', body)).toBe('a body')
  })

  it('client data that looks like a sealed payload is not decrypted', () => {
    const looks = sealed.sealJson('x', data)
    const text = sealed.sealText('x', body)
    for (let depth = 0, value = looks, line = text; depth < 3; depth += 1) {
      const stored = plain.sealJson(value, data)
      expect(stored).not.toEqual(value)
      const storedLine = plain.sealText(line, body)
      for (const payloads of [plain, sealed]) {
        expect(payloads.openJson(stored, data)).toEqual(value)
        expect(payloads.openText(storedLine, body)).toBe(line)
      }
      expect(sealed.openJson(sealed.sealJson(value, data), data)).toEqual(value)
      ;[value, line] = [stored, storedLine]
    }
  })

  it('a missing payload (null) is stored as null', () => {
    for (const payloads of [plain, sealed]) {
      expect(payloads.sealJson(null, data)).toBeNull()
      expect(payloads.openJson(null, data)).toBeNull()
      expect(payloads.sealText(null, body)).toBeNull()
      expect(payloads.openText(null, body)).toBeNull()
    }
  })
})

it('the cache of recent payloads finds a payload for the same column and step, also in a later run of the transaction', () => {
  const recent = createRecentPayloads()
  recent.add('sealed', data, 'text')
  expect(recent.find('sealed', data)).toBe('text')
  expect(recent.find('sealed', { ...data, ReplayID: 2 })).toBe('text')
})

it.each<Partial<PayloadPlace>>([
  { Process: 'OtherProcess' },
  { TransactionID: 'order-2' },
  { column: 'ResponseBody' },
  { step: 'report' },
])(
  'a cached payload is not found for another process, transaction, column or step: %j',
  (other) => {
    const recent = createRecentPayloads()
    recent.add('sealed', data, 'text')
    expect(recent.find('sealed', { ...data, ...other })).toBeUndefined()
  },
)

it('when a generation of the cache of recent payloads is full, the previous generation is dropped', () => {
  const recent = createRecentPayloads(20)
  const names = ['one', 'two', 'six', 'ten']
  for (const name of names) recent.add(name, data, 'text')
  expect(names.map((name) => recent.find(name, data))).toEqual(Array(4).fill('text'))
  recent.add('new', data, 'text')
  expect(names.map((name) => recent.find(name, data))).toEqual([
    undefined,
    undefined,
    'text',
    'text',
  ])
})

it('a payload that alone exceeds the maximum length is not cached, and other payloads stay in the cache', () => {
  const recent = createRecentPayloads(10)
  recent.add('one', data, 'text')
  recent.add('two', data, 'a longer text')
  expect(recent.find('two', data)).toBeUndefined()
  expect(recent.find('one', data)).toBe('text')
})
