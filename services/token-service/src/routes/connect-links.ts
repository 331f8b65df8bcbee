import { Hono } from 'hono'
import { createFactory } from 'hono/factory'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Caller } from '@integration-host/shared/access/caller'
import { KeyId } from '@integration-host/shared/access/key-list'
import { Label, Tags } from '@integration-host/shared/contracts/text'
import { OpenLinks } from '@integration-host/shared/contracts/operations'
import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import {
  callerOf,
  needs,
  requireRealm,
  onlyKnownQuery,
} from '@integration-host/shared/http/request'
import { knownQuery, responses, validate } from '@integration-host/shared/http/service-app'
import { type ConnectLink, findLinks, positionOf } from '../authorization/connect-link-store.ts'
import { DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS } from '../authorization/connect-links.ts'
import { ReturnTo } from './authorization.ts'
import { requireJson, wholeNumber } from './request.ts'
import type { RouteDeps } from './route-deps.ts'

const tags = ['connect links']
const LinkBody = z
  .strictObject({
    realm: Realm.optional().meta({ description: 'the only company that the link may connect' }),
    label: Label.optional(),
    tags: Tags.optional(),
    return_to: ReturnTo.optional(),
    expires_in: z
      .int()
      .min(1)
      .max(MAX_LINK_SECONDS)
      .optional()
      .meta({ description: `seconds; ${DEFAULT_LINK_SECONDS} if it is missing` }),
  })
  .meta({ ref: 'CreateConnectLink' })
const LinkId = z.string().regex(/^[A-Za-z0-9_-]{43}$/, 'is not the id of a connect link')
const CreatedView = z
  .object({ id: LinkId, url: z.url(), expires_at: z.iso.datetime() })
  .meta({ ref: 'CreatedConnectLink' })
const LinkView = z
  .object({
    id: LinkId,
    realm: Realm.nullable(),
    label: z.string().nullable(),
    tags: z.record(z.string(), z.string()),
    return_to: z.string().nullable(),
    created_at: z.iso.datetime(),
    created_by: z.string(),
    expires_at: z.iso.datetime(),
    used_at: z.iso.datetime().nullable(),
  })
  .meta({ ref: 'ConnectLink' })
const LinkPage = z
  .object({ items: z.array(LinkView), next_cursor: z.string().nullable() })
  .meta({ ref: 'ConnectLinkPage' })
const PageQuery = z.object({
  cursor: z
    .string()
    .regex(/^\d{15}:[A-Za-z0-9_-]{43}$/, 'is not a cursor of this list')
    .optional(),
  limit: wholeNumber(1, 500).optional(),
})

/** The routes with which operators create, list and delete connect links. */
export function connectLinkRoutes({ connectLinks, links, redirectUri }: RouteDeps): Hono {
  return new Hono()
    .post(
      '/connect-links',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'createConnectLink',
        tags,
        summary: 'Creates a link with which the owner of a company connects it',
        responses: responses({ 201: CreatedView }, 'connect_links_full', 'quota_exceeded'),
      }),
      requireJson,
      validate('json', LinkBody),
      async (c) => {
        const {
          realm = null,
          return_to = null,
          label = null,
          tags: companyTags = {},
          expires_in = DEFAULT_LINK_SECONDS,
        } = c.req.valid('json')
        // Without a realm in the request, any company can be connected with the link.
        if (realm === null) callerOf(c).requireEveryRealm()
        else requireRealm(c, realm)
        const { ticket, link } = await connectLinks.create({
          realm,
          returnTo: return_to,
          label,
          tags: companyTags,
          lifetimeSeconds: expires_in,
          createdBy: callerOf(c).name,
          keyId: callerOf(c).shareOf,
        })
        const created: z.input<typeof CreatedView> = {
          id: link.id,
          url: new URL(`connect/${ticket}`, redirectUri).href,
          expires_at: new Date(link.expiresAt).toISOString(),
        }
        return c.json(created, 201)
      },
    )
    .get(
      '/connect-links',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'listConnectLinks',
        tags,
        summary: 'The connect links, those that are deleted first at the beginning',
        description:
          'An expired link is listed for 15 minutes, a used one for up to a day. A page may have fewer items than `limit`, because links that the key may not use are left out.',
        responses: responses(LinkPage),
      }),
      knownQuery(PageQuery),
      async (c) => {
        const { cursor = '', limit = 100 } = c.req.valid('query')
        const found = await links.list({ after: cursor, limit: limit + 1 })
        const shown = found.slice(0, limit)
        const last = shown.at(-1)
        return c.json({
          items: shown
            .filter((link) => mayManage(callerOf(c), link))
            .map((link) => viewOf(link, callerOf(c))),
          next_cursor: found.length > limit && last !== undefined ? positionOf(last) : null,
        })
      },
    )
    .delete(
      '/connect-links/:id',
      needs('credentials:manage'),
      describeRoute({
        operationId: 'deleteConnectLink',
        tags,
        summary: 'Deletes a connect link, so that it can no longer be used',
        responses: responses({ 204: null }, 'not_found'),
      }),
      validate('param', z.object({ id: LinkId })),
      async (c) => {
        const { id } = c.req.valid('param')
        const link = await links.get(id)
        // A link that the caller's key may not see is treated as if it did not exist.
        const caller = callerOf(c)
        const isRemoved =
          link !== null &&
          mayManage(caller, link) &&
          (await connectLinks.withdraw(link, caller.name))
        if (!isRemoved) throw new IntegrationError('not_found', 'there is no such connect link')
        return c.body(null, 204)
      },
    )
}

/** `/keys/{id}/open`: the unused connect links that a key has created, for the revocation of the key. */
export function keyLinkRoutes({ connectLinks, links }: RouteDeps): Hono {
  const linksOf = (id: string): Promise<readonly ConnectLink[]> =>
    findLinks(links, ({ keyId, usedAt }) => keyId === id && usedAt === null)
  const route = (
    operationId: string,
    summary: string,
    change: (link: ConnectLink, caller: Caller) => Promise<unknown> = async () => {},
  ) =>
    createFactory().createHandlers(
      needs('credentials:manage'),
      describeRoute({
        operationId,
        tags,
        summary,
        responses: responses(OpenLinks),
      }),
      onlyKnownQuery(),
      validate('param', z.object({ id: KeyId })),
      async (c) => {
        const caller = callerOf(c)
        caller.requireEveryRealm()
        const open = await linksOf(c.req.valid('param').id)
        for (const link of open) await change(link, caller)
        return c.json({ ConnectLinks: open.length } satisfies z.output<typeof OpenLinks>)
      },
    )
  return new Hono()
    .get('/keys/:id/open', ...route('countLinksOfKey', 'How many unused connect links a key has'))
    .delete(
      '/keys/:id/open',
      ...route(
        'withdrawLinksOfKey',
        'Withdraws the unused connect links of a key',
        (link, caller) => connectLinks.withdraw(link, caller.name),
      ),
    )
    .post(
      '/keys/:id/open/keep',
      ...route(
        'keepLinksOfKey',
        'Makes the unused connect links of a key independent of the key',
        (link) => connectLinks.keep(link),
      ),
    )
}

/**
 * Returns whether a caller may see and delete a link. A link without a realm can connect any company, so a caller whose
 * key is bound to realms may not see it.
 */
const mayManage = (caller: Caller, { realm }: ConnectLink): boolean =>
  realm === null ? !caller.isBoundToRealms : caller.mayUseRealm(realm)

/**
 * Returns a link as a caller may see it. Without `credentials:read`, label, tags and `return_to` of a link that another
 * key has created are left out.
 */
function viewOf(link: ConnectLink, caller: Caller): z.input<typeof LinkView> {
  const isOwn = link.keyId !== null && link.keyId === caller.shareOf
  const maySeeAll = caller.has('credentials:read') || isOwn
  return {
    id: link.id,
    realm: link.realm,
    label: maySeeAll ? link.label : null,
    tags: maySeeAll ? link.tags : {},
    return_to: maySeeAll ? link.returnTo : null,
    created_at: new Date(link.createdAt).toISOString(),
    created_by: link.createdBy,
    expires_at: new Date(link.expiresAt).toISOString(),
    used_at: link.usedAt === null ? null : new Date(link.usedAt).toISOString(),
  }
}
