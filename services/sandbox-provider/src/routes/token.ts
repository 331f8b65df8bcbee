import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Grants, Issued } from '../grant/grants.ts'
import { idTokenClaims } from '../identity/id-token.ts'
import type { IdentitySigner } from '../identity/identity-signer.ts'
import { type Addresses, issuerOf, paths } from './addresses.ts'
import {
  type Client,
  clientRejected,
  isClient,
  isClientOfForm,
  readForm,
} from './client-authentication.ts'
import { invalidGrant } from './token-errors.ts'
import {
  type AnsweredEnv,
  responsesUnderFaults,
  underFaults,
  type UnderFaultsDeps,
} from './under-faults.ts'

/**
 * Intuit's names of request headers and response members, from the provider profile that the services use. Every
 * personality uses these names.
 */
const names = intuit.token

export interface TokenDeps extends UnderFaultsDeps {
  readonly client: Client
  readonly grants: Grants
  readonly signer: IdentitySigner
  readonly addresses: () => Addresses
}

/** `POST /oauth2/v1/tokens/bearer`: the token endpoint, for the grant types `authorization_code` and `refresh_token`. */
export function tokenRoutes(deps: TokenDeps) {
  const { grants, counters, settings } = deps
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
    underFaults('token', deps),
    async (c) => {
      c.header('Pragma', 'no-cache') // RFC 6749 §5.1 requires Pragma in addition to Cache-Control
      const authorization = c.req.header('Authorization')
      const form = await readForm(c)
      const isAuthenticated =
        authorization === undefined && settings.current().clientSecretPost
          ? isClientOfForm(form, deps.client)
          : isClient(authorization, deps.client)
      if (!isAuthenticated) return clientRejected(c, counters)
      switch (form?.get('grant_type')) {
        case 'authorization_code': {
          const code = form?.get('code')
          if (!code) return c.json({ error: 'invalid_request' }, 400)
          const issued = grants.exchangeCode(code, {
            redirectUri: form?.get('redirect_uri') ?? null,
            codeVerifier: form?.get('code_verifier') ?? null,
          })
          return respond(c, issued, invalidGrant.code, deps)
        }
        case 'refresh_token': {
          const token = form?.get('refresh_token')
          if (!token) return c.json({ error: 'invalid_request' }, 400)
          const realm = grants.realmOf(token)
          if (realm !== null) c.set('answered', counters.refreshBegins(realm))
          return respond(c, grants.refresh(token), invalidGrant.refreshToken, deps)
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
  deps: TokenDeps,
): Promise<Response> {
  if (issued === null) return c.json(rejection, 400)
  const at = {
    issuer: issuerOf(deps.addresses()),
    clientId: deps.client.id,
    nowSeconds: Math.floor(deps.now() / 1_000),
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
      id_token: await deps.signer.sign(idTokenClaims(issued, at)),
    }),
  })
}
