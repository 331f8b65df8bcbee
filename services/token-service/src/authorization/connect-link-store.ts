/**
 * The port to the stored connect links. A link is stored under the digest of its ticket, and the ticket itself is only
 * in the URL.
 *
 * Every adapter passes the same contract suite. All methods throw `IntegrationError` `store_unavailable` if the store
 * cannot be used.
 */
import { z } from 'zod'
import type { PlaceLimits } from '@integration-host/shared/access/caller'
import { type IntegrationError, quotaExceeded } from '@integration-host/shared/errors'
import { Realm } from '@integration-host/shared/contracts/realm'

export interface ConnectLinkStore {
  /**
   * Stores a link. Resolves with `false` if `CONNECT_LINKS.total` links are already stored.
   *
   * @throws {IntegrationError} `quota_exceeded` if `CONNECT_LINKS.perKey` links of its key are already stored.
   */
  add(link: ConnectLink, now: number): Promise<boolean>

  /**
   * Resolves with a link; `null` if it was never stored, was deleted, or has passed its deletion time ({@link
   * keptUntil}).
   */
  get(id: string): Promise<ConnectLink | null>

  /** Marks a link as used by a browser. Resolves with `false` if it was already used or is not stored. */
  use(link: ConnectLink, use: LinkUse): Promise<boolean>

  /** Returns a page of links in the order of {@link positionOf}, beginning after the position `after`. */
  list(page: { readonly after: string; readonly limit: number }): Promise<readonly ConnectLink[]>

  /** Deletes a link. Resolves with `false` if it is not stored. */
  remove(link: Pick<ConnectLink, 'id' | 'keyId'>): Promise<boolean>
}

/** A connect link in its stored form. A link can start one authorization. Times are epoch milliseconds. */
export const ConnectLink = z
  .object({
    /** The digest of the ticket in the URL. */
    id: z.string(),
    /** The company that must be connected with the link; `null` if any company may be connected. */
    realm: Realm.nullable(),
    returnTo: z.string().nullable(),
    /** The label and the tags for the credential of the company. */
    label: z.string().nullable(),
    tags: z.record(z.string(), z.string()).readonly(),
    createdAt: z.number(),
    expiresAt: z.number(),
    /** The caller that created the link, as the audit log names it. */
    createdBy: z.string(),
    /**
     * The id of the key that created the link, with which the link ends; `null` if a service of the installation created
     * it, or if it was kept when its key was revoked. A link from an earlier release names no key.
     */
    keyId: z.string().nullable().default(null),
    /** The time at which the link was first used; `null` if it was not used. */
    usedAt: z.number().nullable(),
    /** The digest of the cookie of the browser that used the link; `null` if it was not used. */
    usedBy: z.string().nullable().default(null),
  })
  .readonly()
export type ConnectLink = z.output<typeof ConnectLink>

export interface LinkUse {
  readonly usedAt: number
  readonly usedBy: string
}

/** How many links may be stored, which limits the memory of the store. */
export const CONNECT_LINKS: PlaceLimits = { total: 20_000, perKey: 2_000 }

export const tooManyLinksOfKey = (): IntegrationError =>
  quotaExceeded('connect links', CONNECT_LINKS.perKey)

/**
 * How long an expired link stays stored, in milliseconds. During this time, its page shows that the link has expired.
 */
const EXPIRED_KEPT_MS = 15 * 60_000
/**
 * The maximum time for which a used link stays stored, in milliseconds. During this time, its page shows that the link
 * was used.
 */
const USED_KEPT_MS = 24 * 3_600_000

/** Returns the time at which a link is deleted, in epoch milliseconds. */
export function keptUntil({
  expiresAt,
  usedAt,
}: Pick<ConnectLink, 'expiresAt' | 'usedAt'>): number {
  const until = expiresAt + EXPIRED_KEPT_MS
  return usedAt === null ? until : Math.min(until, usedAt + USED_KEPT_MS)
}

/** Returns the position of a link in lists: links that are deleted earlier come first. */
export const positionOf = (link: ConnectLink): string => `${timePrefix(keptUntil(link))}:${link.id}`

/**
 * Returns the common prefix of all positions with the same deletion time. All times have the same number of digits, so
 * that positions sort correctly as text.
 */
export const timePrefix = (at: number): string => String(at).padStart(15, '0')

const PAGE = 500

/** Returns all stored links for which `isWanted` returns true. Reads every link, so only rare requests call it. */
export async function findLinks(
  links: Pick<ConnectLinkStore, 'list'>,
  isWanted: (link: ConnectLink) => boolean,
): Promise<readonly ConnectLink[]> {
  const found: ConnectLink[] = []
  for (let after = ''; ;) {
    const page = await links.list({ after, limit: PAGE })
    found.push(...page.filter(isWanted))
    const last = page.at(-1)
    if (last === undefined || page.length < PAGE) return found
    after = positionOf(last)
  }
}
