import { hash, randomBytes } from 'node:crypto'

const LIFETIME_MS = 10 * 60_000
/** The maximum number of links. A further link removes the oldest link. */
const MAX_LINKS = 20

export interface OneTimeLinks {
  /** Creates the secret of a link, which signs in an operator once, within ten minutes. */
  create(): { readonly secret: string; readonly expiresAt: number }
  /** Uses a link, which is invalid afterwards. Returns whether the link was valid. */
  use(secret: string): boolean
}

/**
 * Keeps the SHA-256 of the one-time links of this process, and not the links themselves. The lookup compares
 * digests, so its duration reveals nothing about a secret.
 */
export function createOneTimeLinks(now: () => number): OneTimeLinks {
  const expiries = new Map<string, number>()
  return {
    create() {
      const secret = randomBytes(32).toString('base64url')
      const expiresAt = now() + LIFETIME_MS
      expiries.set(hash('sha256', secret), expiresAt)
      const [oldest] = expiries.keys()
      if (expiries.size > MAX_LINKS && oldest !== undefined) expiries.delete(oldest)
      return { secret, expiresAt }
    },
    use(secret) {
      const digest = hash('sha256', secret)
      const expiresAt = expiries.get(digest)
      expiries.delete(digest)
      return expiresAt !== undefined && now() < expiresAt
    },
  }
}
