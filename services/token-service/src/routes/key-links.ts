import { Hono } from 'hono'
import { createFactory } from 'hono/factory'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { Caller } from '@integration-host/shared/access/caller'
import { KeyId } from '@integration-host/shared/access/key-list'
import { OpenLinks } from '@integration-host/shared/contracts/operations'
import { callerOf, needs } from '@integration-host/shared/http/access'
import { onlyKnownQuery } from '@integration-host/shared/http/request'
import { responses, validate } from '@integration-host/shared/http/service-app'
import {
  type ConnectLink,
  type ConnectLinkStore,
  findLinks,
} from '../authorization/connect-link-store.ts'
import type { ConnectLinks } from '../authorization/connect-links.ts'

export interface KeyLinkRoutesDeps {
  readonly connectLinks: Pick<ConnectLinks, 'withdraw' | 'keep'>
  readonly links: Pick<ConnectLinkStore, 'list'>
}

/** `/keys/{id}/open`: the unused connect links that a key has created, for the revocation of the key. */
export function keyLinkRoutes({ connectLinks, links }: KeyLinkRoutesDeps): Hono {
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
        tags: ['connect links'],
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
