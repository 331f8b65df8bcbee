import { describe, expect, it } from 'vitest'
import { unreachable } from './reach.ts'

const coded = (code: string) => Object.assign(new Error('a-password in the message'), { code })

describe('the explanations of the error codes of backends', () => {
  it.each([
    [coded('28P01'), 'has another password for this user, or no such user'],
    [coded('3D000'), 'has no such database'],
    [coded('53300'), 'has no free connection'],
    [coded('57P03'), 'is starting up or shutting down'],
    [coded('ENOTFOUND'), 'there is no such host'],
    [coded('UND_ERR_SOCKET'), 'ends the connection'],
    [coded('HPE_INVALID_CONSTANT'), 'does not speak HTTP'],
    [new Error('WRONGPASS invalid username-password pair'), 'rejects the user or the password'],
    [new Error('NOAUTH Authentication required.'), 'needs a password'],
    [new Error('LOADING Redis is loading the dataset in memory'), 'is starting up'],
    [new Error('OOM command not allowed'), 'has reached maxmemory'],
    [
      new Error('Handshake terminated by server: 403 (ACCESS-REFUSED) with message "x"'),
      'rejects the user, the password, or the virtual host',
    ],
    [
      new Error('Operation failed: 530 (NOT-ALLOWED) with message "x"'),
      'has no such virtual host, or denies it to this user',
    ],
    [
      new Error('Socket closed abruptly during opening handshake'),
      'ends the connection before it is open',
    ],
    [new TypeError('fetch failed', { cause: coded('ECONNREFUSED') }), 'no process listens there'],
  ])('doctor explains the error %s as: %s', (error, found) => {
    expect(unreachable('host:1', 'SOME_URL', error)).toMatchObject({
      verdict: 'problem',
      found: `host:1: ${found}`,
      remedy: expect.stringMatching(/\(SOME_URL\)$/),
    })
  })

  it.each([coded('E_NEW'), coded('constructor'), new Error('SOMETHING else')])(
    'doctor prints the code of an unknown error, and not its message: %s',
    (error) => {
      const { found } = unreachable('host:1', 'SOME_URL', error)
      expect(found).toMatch(/^host:1: cannot be used \(\w+\)$/)
      expect(found).not.toContain('password')
    },
  )
})
