import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { createSealedCursors } from './sealed-cursors.ts'

const [older, newer] = [new Secret('o'.repeat(32)), new Secret('n'.repeat(32))]
const Position = z.tuple([z.string(), z.int()])
const position = ['invoice-100', 7] as const
const cursors = createSealedCursors([older])

describe('the cursor of a list', () => {
  it('a list cursor can be decrypted by every replica with the same service key, and does not reveal its position', () => {
    const cursor = cursors.seal('runs', position)
    expect(createSealedCursors([older]).open('runs', cursor, Position)).toEqual(position)
    for (const part of cursor.split('.'))
      expect(Buffer.from(part, 'base64url').toString('latin1')).not.toContain('invoice')
  })

  it('a list cursor stays valid when a new first key is added, and becomes invalid when the key that encrypted it is removed', () => {
    const cursor = cursors.seal('runs', position)
    expect(createSealedCursors([newer, older]).open('runs', cursor, Position)).toEqual(position)
    expect(() => createSealedCursors([newer]).open('runs', cursor, Position)).toThrow('cursor')
  })

  it.each([
    ['made for another list', cursors.seal('operations', position)],
    ['with a position of another form', cursors.seal('runs', [7])],
    [
      'with a changed byte',
      cursors.seal('runs', position).replace(/.$/, (c) => (c < 'Q' ? 'z' : 'A')),
    ],
    ['made by the client', Buffer.from(JSON.stringify(position)).toString('base64url')],
    ['that is empty', ''],
  ])('a cursor %s is rejected as an invalid request that names the parameter', (_, cursor) => {
    expect(() => cursors.open('runs', cursor, Position)).toThrow(
      expect.objectContaining({
        code: 'invalid_request',
        message: expect.stringMatching(/^cursor: /),
      }),
    )
  })
})
