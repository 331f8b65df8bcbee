import { jsonResponse } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import { userInfo } from '../identity/id-token.ts'
import { paths, type Provider } from '../provider.ts'
import { bearerToken } from './client-authentication.ts'

/** The routes `GET /op/v1/jwks` and `GET /v1/openid_connect/userinfo`. */
export function identityRoutes({ grants, signer }: Provider) {
  return new Hono()
    .get(
      paths.jwks,
      describeRoute({
        operationId: 'getKeySet',
        tags: ['provider'],
        summary: 'Keys that id tokens are signed with',
        responses: {
          200: jsonResponse('JSON Web Key Set', z.object({ keys: z.array(z.looseObject({})) })),
        },
      }),
      (c) => c.json(signer.jwks),
    )
    .get(
      paths.userinfo,
      describeRoute({
        operationId: 'getUserInfo',
        tags: ['provider'],
        summary: 'Claims about the user who consented',
        responses: {
          200: jsonResponse(
            'claims for the scopes that were granted',
            z.looseObject({ sub: z.string() }),
          ),
          401: jsonResponse('no valid access token with openid', z.object({ error: z.string() })),
        },
      }),
      (c) => {
        const access = grants.accessToken(bearerToken(c) ?? '')
        if (access === null || !access.scope.includes('openid')) {
          c.header('WWW-Authenticate', 'Bearer realm="sandbox-provider", error="invalid_token"')
          return c.json({ error: 'invalid_token' }, 401)
        }
        return c.json(userInfo(access.subject, access.scope))
      },
    )
}
