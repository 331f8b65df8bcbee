/** The lines of the users file of the console: `name:role:scrypt$32768$8$1$salt$hash` (scrypt, RFC 7914). */
import { randomBytes, scrypt } from 'node:crypto'
import { promisify } from 'node:util'
import type { Role } from './scope.ts'

/** scrypt's cost parameters. One derivation needs 32 MiB and about 0.1 s of a processor core. */
const COST = { N: 32_768, r: 8, p: 1, maxmem: 67_108_864 } as const
export const HASH_BYTES = 32
const NAME = /^[A-Za-z0-9][A-Za-z0-9.@_+-]{0,99}$/

const derive = promisify<string, Buffer, number, typeof COST, Buffer>(scrypt)

/** Returns whether a person can have this name. */
export const isUserName = (name: string): boolean => NAME.test(name)

/** Derives the hash of a password. */
export const hashOf = (password: string, salt: Buffer): Promise<Buffer> =>
  derive(password.normalize('NFC'), salt, HASH_BYTES, COST)

/** Returns the line for a person and a password. */
export async function userLine(name: string, role: Role, password: string): Promise<string> {
  const salt = randomBytes(16)
  const hash = await hashOf(password, salt)
  return `${name}:${role}:scrypt$32768$8$1$${salt.toString('base64url')}$${hash.toString('base64url')}`
}
