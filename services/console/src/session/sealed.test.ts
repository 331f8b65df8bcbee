import { expect, it } from 'vitest'
import { seal, unseal } from './sealed.ts'

const CONTENT = Buffer.from('a link · ✓')

it('only the secret and the name with which a content was encrypted decrypt it', () => {
  const sealed = seal('secret of a session', 'name', CONTENT)
  expect(unseal('secret of a session', 'name', sealed)).toEqual(CONTENT)
  expect(Buffer.from(sealed, 'base64url').toString()).not.toContain('a link')
  expect(() => unseal('another secret', 'name', sealed)).toThrow('unable to authenticate data')
  expect(() => unseal('secret of a session', 'another name', sealed)).toThrow(
    'unable to authenticate data',
  )
  expect(seal('secret of a session', 'name', CONTENT)).not.toBe(sealed)
})

it.each([0, 20, 60])('a content whose byte %i was changed is not decrypted', (index) => {
  const bytes = Buffer.from(seal('secret', 'name', Buffer.alloc(100)), 'base64url')
  bytes[index] = (bytes[index] ?? 0) ^ 1
  expect(() => unseal('secret', 'name', bytes.toString('base64url'))).toThrow(
    'unable to authenticate data',
  )
})
