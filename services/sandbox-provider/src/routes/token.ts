import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Issued } from '../grant/grants.ts'
import { idTokenClaims } from '../identity/id-token.ts'
import { issuerOf, paths, type Provider } from '../provider.ts'
import { clientRejected, isClient, isClientOfForm, readForm } from './client-authentication.ts'
import {
  type AnsweredEnv,
  invalidGrant,
  responsesUnderFaults,
  underFaults,
} from './under-faults.ts'

/**
 * Intuit's names of request headers and response members, from the provider profile that the services use. Every
 * personality uses these names.
 */
const names = intuit.token

/** `POST /oauth2/v1/tokens/bearer`: the token endpoint, for the grant types `authorization_code` and `refresh_token`. */
export function tokenRoutes(provider: Provider) {
  const { grants, counters, settings } = provider
  return new Hono<AnsweredEnv>().post(
    paths.token,
    describeRoute({
      operationId: 'requestTokens',
      tags: ['provider'],
      summary: 'Token endpoint',
      requestBody: {
        required: true,
        content: {
          'application/x-www-form-urlencoded': {
            schema: {
              type: 'object',
              required: ['grant_type'],
              properties: {
                grant_type: { type: 'string', enum: ['authorization_code', 'refresh_token'] },
                code: { type: 'string' },
                redirect_uri: { type: 'string' },
                code_verifier: { type: 'string' },
                refresh_token: { type: 'string' },
                client_id: { type: 'string' },
                client_secret: { type: 'string' },
              },
            },
          },
        },
      },
      responses: responsesUnderFaults({
        200: 'an access token, a refresh token and, with the scope openid, an id token',
        400: 'invalid_request, invalid_grant or unsupported_grant_type',
        401: 'invalid_client',
      }),
    }),
    underFaults('token', provider),
    async (c) => {
      c.header('Pragma', 'no-cache') // RFC 6749 §5.1 requires Pragma in addition to Cache-Control
      const authorization = c.req.header('Authorization')
      const form = await readForm(c)
      const isAuthenticated =
        authorization === undefined && settings.current().clientSecretPost
          ? isClientOfForm(form, provider.client)
          : isClient(authorization, provider.client)
      if (!isAuthenticated) return clientRejected(c, counters)
      switch (form?.get('grant_type')) {
        case 'authorization_code': {
          const code = form?.get('code')
          if (!code) return c.json({ error: 'invalid_request' }, 400)
          const issued = grants.exchangeCode(code, {
            redirectUri: form?.get('redirect_uri') ?? null,
            codeVerifier: form?.get('code_verifier') ?? null,
          })
          return respond(c, issued, invalidGrant.code, provider)
        }
        case 'refresh_token': {
          const token = form?.get('refresh_token')
          if (!token) return c.json({ error: 'invalid_request' }, 400)
          const realm = grants.realmOf(token)
          if (realm !== null) c.set('answered', counters.refreshBegins(realm))
          return respond(c, grants.refresh(token), invalidGrant.refreshToken, provider)
        }
        case undefined:
          return c.json({ error: 'invalid_request' }, 400)
        default:
          return c.json({ error: 'unsupported_grant_type' }, 400)
      }
    },
  )
}

async function respond(
  c: Context,
  issued: Issued | null,
  rejection: (typeof invalidGrant)[keyof typeof invalidGrant],
  provider: Provider,
): Promise<Response> {
  if (issued === null) return c.json(rejection, 400)
  const at = {
    issuer: issuerOf(provider.addresses()),
    clientId: provider.client.id,
    nowSeconds: Math.floor(provider.now() / 1_000),
  }
  const isHardExpiryRequested = Object.entries(names.requestHeaders).every(
    ([name, value]) => c.req.header(name) === value,
  )
  return c.json({
    token_type: 'bearer',
    access_token: issued.accessToken,
    expires_in: issued.accessTokenSeconds,
    refresh_token: issued.refreshToken,
    [names.idleExpiryMember]: issued.refreshTokenSeconds,
    ...(isHardExpiryRequested &&
      names.hardExpiryMember !== null && { [names.hardExpiryMember]: issued.hardExpirySeconds }),
    ...(issued.scope.includes('openid') && {
      id_token: await provider.signer.sign(idTokenClaims(issued, at)),
    }),
  })
}
