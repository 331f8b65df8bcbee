import { type AccessKeys, unauthorized } from '@integration-host/shared/access/access-keys'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { pages } from '../isomorphic/pages.ts'
import { SignInLink, type SignInWay } from '../contracts/session.ts'
import type { OneTimeLinks } from '../session/one-time-link.ts'

export interface SignInLinkRouteDeps {
  readonly keys: Pick<AccessKeys, 'identify'>
  readonly links: OneTimeLinks
  readonly ways: readonly SignInWay[]
  readonly consoleUrl: () => string
}

/** Returns the address of a one-time link. Its secret is in the fragment, which browsers never send. */
export const linkUrl = (consoleUrl: string, secret: string): string =>
  `${consoleUrl}${pages.signIn}#${secret}`

/** `POST /sign-in-links`: creates a one-time link. The caller is the command line, with a service key. */
export function signInLinkRoutes({ keys, links, ways, consoleUrl }: SignInLinkRouteDeps): Hono {
  return new Hono().post(
    '/sign-in-links',
    describeRoute({
      operationId: 'createSignInLink',
      tags: ['session'],
      summary: 'Creates a link that signs an operator in once, within ten minutes',
      description: 'The request needs a key of SERVICE_API_KEY(S) as a bearer token.',
      responses: {
        201: jsonResponse('the link', SignInLink),
        ...problemResponses({
          401: 'no valid service key',
          403: 'SIGN_IN does not contain link',
        }),
      },
    }),
    (c) => {
      if (keys.identify(c.req.header('Authorization')) === null) throw unauthorized()
      if (!ways.includes('link'))
        throw new IntegrationError('forbidden', 'SIGN_IN does not contain link')
      const { secret, expiresAt } = links.create()
      return c.json(
        { Url: linkUrl(consoleUrl(), secret), ExpiresAt: new Date(expiresAt).toISOString() },
        201,
      )
    },
  )
}
