import { createHash } from 'node:crypto'
import type { Context } from 'hono'

const known = new Map<string, string>()

/**
 * The caller of an authenticated request, as the audit log names it: `key` and the first eight hex digits of the
 * SHA-256 of its service key. That tells keys of 32 characters or more apart, and does not help to guess one.
 */
export function callerOf(c: Context): string {
  const authorization = c.req.header('authorization') ?? ''
  let caller = known.get(authorization)
  if (caller === undefined) {
    const key = authorization.replace(/^bearer +/i, '')
    caller = `key ${createHash('sha256').update(key).digest('hex').slice(0, 8)}`
    // Only authenticated requests get here, so there are few keys, each in few spellings.
    if (known.size < 1_000) known.set(authorization, caller)
  }
  return caller
}
