import { createHash } from 'node:crypto'
import type { Context } from 'hono'

const known = new Map<string, string>()

/**
 * Returns the caller of an authenticated request as the audit log names it: `key` and the first eight hex digits of
 * the SHA-256 of its service key. The 32 bits distinguish the few keys of an installation and do not help to guess a
 * key, which has at least 32 characters.
 */
export function callerOf(c: Context): string {
  const authorization = c.req.header('authorization') ?? ''
  let caller = known.get(authorization)
  if (caller === undefined) {
    const key = authorization.replace(/^bearer +/i, '')
    caller = `key ${createHash('sha256').update(key).digest('hex').slice(0, 8)}`
    // Limits the size of the cache, because an authenticated caller can vary the spelling of the header, for example
    // its spaces.
    if (known.size < 1_000) known.set(authorization, caller)
  }
  return caller
}
