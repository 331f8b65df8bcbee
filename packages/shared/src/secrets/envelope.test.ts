import { randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import {
  DecryptionError,
  generateKeyRing,
  parseKeyRing,
  watchDecryptionFailures,
} from './envelope.ts'
import { Secret } from './secret.ts'

const key = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const place = { name: 'ACC-111', field: 'RefreshToken', version: 4 }
const ring = parseKeyRing(generateKeyRing())

describe('an envelope of a secret at rest', () => {
  it.each(['', 'RT-1', 'é\u0000漢字', 'x'.repeat(100_000)])(
    'opening an envelope returns the text that was sealed: %#',
    (plaintext) => {
      expect(ring.open(ring.seal(plaintext, place), place)).toBe(plaintext)
    },
  )

  it('each encryption of the same text returns a different envelope', () => {
    const sealed = Array.from({ length: 1_000 }, () => ring.seal('RT-1', place))
    expect(new Set(sealed).size).toBe(1_000)
  })

  it.each([{ name: 'ACC-222' }, { field: 'Authenticator' }, { version: 5 }])(
    'an envelope cannot be opened for another record name, field or version than it was sealed for: %j',
    (elsewhere) => {
      const envelope = ring.seal('RT-1', place)
      expect(() => ring.open(envelope, { ...place, ...elsewhere })).toThrow(DecryptionError)
    },
  )

  it('an envelope cannot be opened for another record name and field, even if name and field concatenate to the same text', () => {
    const envelope = ring.seal('RT-1', { name: 'ab', field: 'c', version: 1 })
    expect(() => ring.open(envelope, { name: 'a', field: 'bc', version: 1 })).toThrow(
      DecryptionError,
    )
  })

  it('an envelope cannot be opened if any of its bytes was changed', () => {
    const [format = '', id = '', nonce = '', sealed = ''] = ring.seal('RT-1', place).split('.')
    for (const [index, part] of [nonce, sealed].entries()) {
      const bytes = Buffer.from(part, 'base64url')
      for (let at = 0; at < bytes.length; at++) {
        const flipped = Buffer.from(bytes)
        flipped[at] = (flipped[at] ?? 0) ^ 1
        const parts =
          index === 0
            ? [format, id, flipped.toString('base64url'), sealed]
            : [format, id, nonce, flipped.toString('base64url')]
        expect(() => ring.open(parts.join('.'), place)).toThrow(DecryptionError)
      }
    }
  })

  it.each([4, 8, 12, 13, 14, 15])(
    'an envelope cannot be opened if its authentication tag is truncated to %d bytes',
    (length) => {
      const parts = ring.seal('', place).split('.')
      const tag = Buffer.from(parts[3] ?? '', 'base64url').subarray(0, length)
      expect(() =>
        ring.open([...parts.slice(0, 3), tag.toString('base64url')].join('.'), place),
      ).toThrow(DecryptionError)
    },
  )

  it.each(['', 'plain text', '2.k1.AAAA.AAAA', '1.k1'])(
    'the text %j is rejected as an envelope',
    (text) => {
      expect(() => ring.open(text, place)).toThrow(DecryptionError)
    },
  )

  it('an envelope is sealed with the first key of the key ring, and can be opened with every key of the ring', () => {
    const [older, newer] = [key('old'), key('new')]
    const envelope = parseKeyRing(new Secret(older)).seal('RT-1', place)
    const both = parseKeyRing(new Secret(`${newer},${older}`))
    expect(both.activeKeyId).toBe('new')
    expect(both.open(envelope, place)).toBe('RT-1')
    expect(() => parseKeyRing(new Secret(newer)).open(envelope, place)).toThrow('no key old')
  })

  it.each([
    ['an entry without an id', randomBytes(32).toString('base64')],
    ['a key of 31 bytes', `k1:${randomBytes(31).toString('base64')}`],
    ['a key in hex', `k1:${randomBytes(32).toString('hex')}`],
    ['a repeated id', `${key('k1')},${key('k1')}`],
    ['an id with a dot', key('k.1')],
    ['an empty list', ''],
  ])('parsing a key ring with %s fails with an error that does not contain the key', (_, list) => {
    const read = () => parseKeyRing(new Secret(list))
    expect(read).toThrow(TypeError)
    const secretPart = list.split(':')[1]?.slice(0, 20)
    if (secretPart) expect(read).not.toThrow(secretPart)
  })
})

describe('an envelope that authenticates labels', () => {
  const labels = '["2026-01-01T01:00:00.000Z"]'

  it('an envelope that authenticates labels can be opened with the same labels, but not with different labels', () => {
    const envelope = ring.sealWithLabels('RT-1', place, labels)
    expect(ring.openWithLabels(envelope, place, labels)).toEqual({
      plaintext: 'RT-1',
      hasLabels: true,
    })
    for (const others of ['', '[]', `${labels} `])
      expect(() => ring.openWithLabels(envelope, place, others)).toThrow(DecryptionError)
  })

  it('the code of earlier releases, which do not know labels, can open an envelope that authenticates labels', () => {
    expect(ring.open(ring.sealWithLabels('RT-1', place, labels), place)).toBe('RT-1')
  })

  it('an envelope that was sealed without labels is recognized, and can be opened with any labels', () => {
    for (let count = 0; count < 1_000; count += 1) {
      const opened = ring.openWithLabels(ring.seal('RT-1', place), place, labels)
      expect(opened).toEqual({ plaintext: 'RT-1', hasLabels: false })
    }
  })

  it('an envelope that authenticates labels cannot be opened for another record or with a changed nonce', () => {
    const envelope = ring.sealWithLabels('RT-1', place, labels)
    const [format = '', id = '', nonce = '', sealed = ''] = envelope.split('.')
    for (const elsewhere of [{ name: 'ACC-222' }, { field: 'Authenticator' }, { version: 5 }])
      expect(() => ring.openWithLabels(envelope, { ...place, ...elsewhere }, labels)).toThrow(
        DecryptionError,
      )
    for (let at = 0; at < 12; at += 1) {
      const flipped = Buffer.from(nonce, 'base64url')
      flipped[at] = (flipped[at] ?? 0) ^ 1
      const changed = [format, id, flipped.toString('base64url'), sealed].join('.')
      expect(() => ring.openWithLabels(changed, place, labels)).toThrow(DecryptionError)
    }
  })

  it('two envelopes with authenticated labels have different nonces if their text, record name, labels or key differ', () => {
    const other = parseKeyRing(new Secret(key('k1')))
    const envelopes = [
      ring.sealWithLabels('RT-1', place, labels),
      ring.sealWithLabels('RT-2', place, labels),
      ring.sealWithLabels('RT-1', { ...place, version: 5 }, labels),
      ring.sealWithLabels('RT-1', place, '[]'),
      other.sealWithLabels('RT-1', place, labels),
    ]
    expect(new Set(envelopes.map((envelope) => envelope.split('.')[2])).size).toBe(5)
  })

  it('watchDecryptionFailures reports each envelope with changed labels and each rejected secret exactly once', () => {
    let failures = 0
    const watched = watchDecryptionFailures(ring, () => (failures += 1))
    const envelope = watched.sealWithLabels('RT-1', place, labels)
    expect(() => watched.openWithLabels(envelope, place, '')).toThrow(DecryptionError)
    expect(() => watched.reject('any reason')).toThrow(DecryptionError)
    expect(failures).toBe(2)
  })
})
