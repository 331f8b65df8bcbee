/**
 * The port to the stored connect links. A link is stored under the digest of its ticket; the ticket itself is only in
 * the URL. Every adapter is tested with the same contract suite. All methods throw `IntegrationError`
 * `store_unavailable` if the store cannot be used.
 */
import { z } from 'zod'
import { Realm } from '@integration-host/shared/contracts/realm'

export interface ConnectLinkStore {
  /** Stores a link. Resolves with `false` if {@link MAX_CONNECT_LINKS} links are stored already. */
  add(link: ConnectLink, now: number): Promise<boolean>

  /**
   * Resolves with a link; `null` if the link was never stored, if it was deleted, or if its deletion time has passed
   * ({@link keptUntil}).
   */
  get(id: string): Promise<ConnectLink | null>

  /** Marks a link as used. Resolves with `false` if it was used before or is not stored. */
  use(link: ConnectLink, now: number): Promise<boolean>

  /** Returns a page of the links in the order of {@link positionOf}, beginning after the position `after`. */
  list(page: { readonly after: string; readonly limit: number }): Promise<readonly ConnectLink[]>

  /** Deletes a link. Resolves with `false` if it is not stored. */
  remove(id: string): Promise<boolean>
}

/** A connect link in its stored form. It starts one authorization. Times are epoch milliseconds. */
export const ConnectLink = z
  .object({
    /** The digest of the ticket in the URL. */
    id: z.string(),
    /** The only company that can be connected with the link; `null` if any company can be connected. */
    realm: Realm.nullable(),
    returnTo: z.string().nullable(),
    /** The label and the tags that the credential of the company gets. */
    label: z.string().nullable(),
    tags: z.record(z.string(), z.string()).readonly(),
    createdAt: z.number(),
    expiresAt: z.number(),
    /** The caller that created the link, as the audit log names it. */
    createdBy: z.string(),
    /** When the link was used; `null` if it can still be used. */
    usedAt: z.number().nullable(),
  })
  .readonly()
export type ConnectLink = z.output<typeof ConnectLink>

/** The limit on stored links, so that they occupy a bounded part of the store. */
export const MAX_CONNECT_LINKS = 20_000

/**
 * How long an expired link stays stored, in milliseconds. During this time, the page of the link shows that the link
 * has expired.
 */
const EXPIRED_KEPT_MS = 15 * 60_000
/**
 * The longest time that a used link stays stored, in milliseconds. During this time, the page of the link shows that
 * the link was used.
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
 * Returns the prefix that all positions with the same deletion time have. All times have the same number of digits, so
 * that positions sort correctly as text.
 */
export const timePrefix = (at: number): string => String(at).padStart(15, '0')
