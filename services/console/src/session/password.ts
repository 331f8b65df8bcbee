/** The users of `USERS_FILE`, and the check of their passwords with scrypt (RFC 7914). */
import { hash as digestOf, timingSafeEqual } from 'node:crypto'
import { HASH_BYTES, hashOf } from '@integration-host/shared/access/user-line'
import { type Role, roles } from '@integration-host/shared/access/scope'
import type { ParsedList } from '@integration-host/shared/files/list-file'

export interface User {
  readonly name: string
  readonly role: Role
  readonly salt: Buffer
  readonly hash: Buffer
}

const LINE =
  /^([A-Za-z0-9][A-Za-z0-9.@_+-]{0,99}):([a-z]+):scrypt\$32768\$8\$1\$([\w-]{22})\$([\w-]{43})$/

/**
 * Parses the lines `name:role:scrypt$32768$8$1$salt$hash` of a users file. Empty lines and lines that begin with `#` are
 * ignored.
 *
 * @throws {Error} names the number of the first invalid line, but not its content.
 */
export function parseUsers(text: string): ReadonlyMap<string, User> {
  const users = new Map<string, User>()
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (line === '' || line.startsWith('#')) continue
    const [, name = '', role, salt = '', hash = ''] = LINE.exec(line) ?? []
    const known = roles.find((one) => one === role)
    if (known === undefined)
      throw new Error(`line ${index + 1} is not name:role:scrypt$32768$8$1$salt$hash`)
    if (users.has(name)) throw new Error(`line ${index + 1} repeats a name`)
    users.set(name, {
      name,
      role: known,
      salt: Buffer.from(salt, 'base64url'),
      hash: Buffer.from(hash, 'base64url'),
    })
  }
  return users
}

/**
 * Returns whether the password is the user's. If the user is `undefined`, because the name is unknown, the check takes
 * the same time. The duration then does not show which names exist.
 */
export async function isPasswordOf(user: User | undefined, password: string): Promise<boolean> {
  const { salt, hash } = user ?? { salt: Buffer.alloc(16), hash: Buffer.alloc(HASH_BYTES) }
  const derived = await hashOf(password, salt)
  return timingSafeEqual(derived, hash) && user !== undefined
}

/** Parses a users file that is read again while the console runs. An empty file is valid: then no person has access. */
export function parseUserList(text: string): ParsedList<User> {
  try {
    return { list: [...parseUsers(text).values()], faults: [] }
  } catch (error) {
    return { list: null, faults: [(error as Error).message] }
  }
}

/** Returns a digest that changes with the password of a user, but not with the role. It reveals nothing about either. */
export const lineDigest = ({ name, salt, hash }: User): string =>
  digestOf('sha256', JSON.stringify([name, salt.toString('hex'), hash.toString('hex')]))
