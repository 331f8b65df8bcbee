/**
 * Connect links: URLs that an operator sends to the owner of a company. A link is valid for days, whereas an
 * authorization request is valid for ten minutes.
 *
 * L1  The URL contains a ticket of 256 random bits. The service stores only the digest of the ticket.
 * L2  A GET request for the URL changes nothing, because mail scanners open links. Only the form on the page uses the
 *     link.
 * L3  A link can be used by one browser, across all replicas. Its use starts an authorization that is bound to the
 *     browser, as `GET /authorize` does. While the provider is unavailable, the link stays unused.
 * L4  For ten minutes after the first use, the same browser can use the link again. A person who comes back from the
 *     provider, chose another company there, or has sent the form twice is not rejected.
 * L5  A link ends with the key that created it.
 */
import { randomBytes } from 'node:crypto'
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import {
  type Authorization,
  AUTHORIZATION_TTL_MS,
  requireReturnable,
  type StartedAuthorization,
} from './authorization-request.ts'
import { digest } from './authorization-store.ts'
import { CONNECT_LINKS, type ConnectLink, type ConnectLinkStore } from './connect-link-store.ts'
import type { AuditCounter } from '../credential/audit-counter.ts'

/** The maximum lifetime of a link, in seconds. */
export const MAX_LINK_SECONDS = 30 * 86_400
export const DEFAULT_LINK_SECONDS = 7 * 86_400

export interface ConnectLinksDeps {
  readonly links: ConnectLinkStore
  readonly authorization: Pick<Authorization, 'start'>
  readonly keys: Pick<AccessKeys, 'hasEnded'>
  readonly returnToOrigins: readonly string[] | null
  readonly auditCounter: Pick<AuditCounter, 'count'>
  readonly now: () => number
}

export type ConnectLinks = ReturnType<typeof createConnectLinks>

export function createConnectLinks(deps: ConnectLinksDeps) {
  const { links, authorization, now } = deps

  function audit(
    { realm }: ConnectLink,
    who: string,
    what: 'link_created' | 'link_used' | 'link_withdrawn',
  ): void {
    const name = realm === null ? '' : credentialName(realm)
    deps.auditCounter.count({ name, version: 0 }, { who, what })
  }

  async function add(link: ConnectLink): Promise<void> {
    if (await links.add(link, now())) return
    throw new IntegrationError(
      'connect_links_full',
      `${CONNECT_LINKS.total} connect links are stored; delete some (DELETE /connect-links/{id}), or wait until some expire`,
    )
  }

  /**
   * Resolves with the link of a ticket if `browser` can use it, and changes nothing (L2). `browser` is the value of the
   * cookie; `null` for a browser without it.
   *
   * @throws {IntegrationError} `connect_link_invalid`: the link does not exist, has expired or was used.
   */
  async function find(ticket: string, browser: string | null): Promise<ConnectLink> {
    const link = /^[A-Za-z0-9_-]{43}$/.test(ticket) ? await links.get(digest(ticket)) : null
    if (link === null) throw unusable('it does not exist, was withdrawn, or expired long ago')
    requireKey(link)
    if (link.usedAt !== null) requireUsedBy(link, browser)
    else if (link.expiresAt <= now()) throw unusable('it has expired')
    return link
  }

  /** Throws if the key that created the link has ended (L5). The page must not name the key. */
  function requireKey({ keyId, createdAt }: ConnectLink): void {
    if (deps.keys.hasEnded(keyId, createdAt)) throw unusable('it was withdrawn')
  }

  /** Throws unless this browser has used the link within the last ten minutes (L4). */
  function requireUsedBy({ usedAt, usedBy }: ConnectLink, browser: string | null): void {
    const isSameBrowser = browser !== null && usedBy === digest(browser)
    if (usedAt === null || !isSameBrowser) throw unusable('it was used before, and works only once')
    if (now() >= usedAt + AUTHORIZATION_TTL_MS)
      throw unusable('this browser used it more than ten minutes ago')
  }

  const start = ({ id, returnTo, realm, label, tags, keyId }: ConnectLink, browser: string) =>
    authorization.start({ returnTo, realm, browser, label, tags, linkId: id, keyId })

  return {
    /**
     * Stores a link, and resolves with the link and its ticket.
     *
     * @throws {IntegrationError} `invalid_request` if `returnTo` is not allowed; `connect_links_full`;
     * `quota_exceeded`; `store_unavailable`.
     */
    async create({
      lifetimeSeconds,
      ...wanted
    }: Pick<ConnectLink, 'realm' | 'returnTo' | 'label' | 'tags' | 'createdBy' | 'keyId'> & {
      readonly lifetimeSeconds: number
    }): Promise<{ readonly ticket: string; readonly link: ConnectLink }> {
      requireReturnable(wanted.returnTo, deps.returnToOrigins)
      const ticket = randomBytes(32).toString('base64url')
      const createdAt = now()
      const link: ConnectLink = {
        ...wanted,
        id: digest(ticket),
        createdAt,
        expiresAt: createdAt + lifetimeSeconds * 1_000,
        usedAt: null,
        usedBy: null,
      }
      await add(link)
      audit(link, link.createdBy, 'link_created')
      return { ticket, link }
    },

    find,

    /**
     * Uses the link of a ticket to start an authorization that is bound to `browser`.
     *
     * @throws {IntegrationError} the errors of `find`; `provider_unavailable`, in which case the link stays unused (L3).
     */
    async use(ticket: string, browser: string): Promise<StartedAuthorization> {
      const link = await find(ticket, browser)
      const started = await start(link, browser)
      const isFirstUse =
        link.usedAt === null && (await links.use(link, { usedAt: now(), usedBy: digest(browser) }))
      // Another request may have used the link meanwhile. This request continues only if both requests come from the
      // same browser.
      if (!isFirstUse) await find(ticket, browser)
      // Only the first use is audited: the browser can use the link again as often as it likes.
      if (isFirstUse) audit(link, 'browser', 'link_used')
      return started
    },

    /**
     * Uses a link again in the browser that has used it (L4). The link is found by its id, which is not secret: without
     * the cookie of that browser, the id is useless.
     *
     * @throws {IntegrationError} `connect_link_invalid`; `provider_unavailable`.
     */
    async useAgain(id: string, browser: string): Promise<StartedAuthorization> {
      const link = await links.get(id)
      if (link === null) throw unusable('it was withdrawn, or was used long ago')
      requireKey(link)
      requireUsedBy(link, browser)
      return start(link, browser)
    },

    /**
     * Makes a link independent of the key that created it, because the key is about to be revoked.
     *
     * @throws {IntegrationError} `connect_links_full`; `store_unavailable`.
     */
    keep: (link: ConnectLink): Promise<void> => add({ ...link, keyId: null }),

    /** Deletes a link. Resolves with `false` if it is not stored. @throws {IntegrationError} `store_unavailable`. */
    async withdraw(link: ConnectLink, who: string): Promise<boolean> {
      if (!(await links.remove(link))) return false
      audit(link, who, 'link_withdrawn')
      return true
    },
  }
}

const unusable = (why: string): IntegrationError =>
  new IntegrationError(
    'connect_link_invalid',
    `This link cannot be used: ${why}. Ask the sender for a new one.`,
  )
