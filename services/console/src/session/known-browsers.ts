/**
 * Recognizes browsers in which a person has signed in with a password, by a cookie that no client can forge (a device
 * cookie, OWASP). Failed sign-ins from elsewhere in the network do not delay such a browser. The cookie gives no access:
 * the password is checked as always.
 */
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'

export const KNOWN_BROWSER_DAYS = 180
const LIFETIME_MS = KNOWN_BROWSER_DAYS * 86_400_000
const VALUE = /^([\w-]{22})\.(\d{1,15})\.([\w-]{43})$/

export interface KnownBrowsers {
  /** Returns the value of the cookie for a browser in which this person has signed in. */
  issue(name: string): string
  /**
   * Returns the id of the browser, which is new after each sign-in; `null` unless the cookie was issued for this name
   * within the last 180 days.
   */
  idOf(name: string, cookie: string | undefined): string | null
}

/** `key` authenticates the cookies. With another key, they are not recognized. `now` returns epoch milliseconds. */
export function createKnownBrowsers(key: Secret, now: () => number): KnownBrowsers {
  const macKey = Buffer.from(
    hkdfSync('sha256', key.reveal(), '', 'integration-host console known browser', 32),
  )
  const macOf = (name: string, id: string, issuedAt: number): Buffer =>
    createHmac('sha256', macKey)
      .update(JSON.stringify([name, id, issuedAt]))
      .digest()
  return {
    issue(name) {
      const id = randomBytes(16).toString('base64url')
      const issuedAt = now()
      return `${id}.${issuedAt}.${macOf(name, id, issuedAt).toString('base64url')}`
    },
    idOf(name, cookie) {
      const [, id, issuedAt, mac] = VALUE.exec(cookie ?? '') ?? []
      if (id === undefined || mac === undefined) return null
      const isIssued = timingSafeEqual(
        macOf(name, id, Number(issuedAt)),
        Buffer.from(mac, 'base64url'),
      )
      return isIssued && now() < Number(issuedAt) + LIFETIME_MS ? id : null
    },
  }
}

/**
 * The browsers in the order of the search. The order matters, because the User-Agent of Edge also contains `Chrome`,
 * and the User-Agent of Chrome contains `Safari`.
 */
const PROGRAMS = [
  ['Edg', 'Edge'],
  ['OPR', 'Opera'],
  ['Firefox', 'Firefox'],
  ['Chrome', 'Chrome'],
  ['Safari', 'Safari'],
] as const
const SYSTEMS = [
  ['iPhone', 'iPhone'],
  ['iPad', 'iPad'],
  ['Android', 'Android'],
  ['Windows', 'Windows'],
  ['Mac OS', 'macOS'],
  ['Linux', 'Linux'],
] as const

/** Returns a name for a header `User-Agent`, such as `Firefox on Linux`, by which a person recognizes a browser. */
export function browserName(userAgent: string | undefined): string {
  const found = (names: readonly (readonly [string, string])[]): string | undefined =>
    names.find(([part]) => userAgent?.includes(part))?.[1]
  const system = found(SYSTEMS)
  return `${found(PROGRAMS) ?? 'A browser'}${system === undefined ? '' : ` on ${system}`}`
}
