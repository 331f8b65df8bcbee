import { type Context, Hono } from 'hono'
import { parseJsonObject } from '@integration-host/shared/json'
import { describeRoute } from 'hono-openapi'
import type { Behaviour } from '../control/settings.ts'
import { paths, type Provider } from '../provider.ts'
import { clientRejected, isClient, mediaType, readForm } from './client-authentication.ts'
import { responsesUnderFaults, underFaults } from './under-faults.ts'

/**
 * `POST /v2/oauth2/tokens/revoke` with HTTP Basic. Revoking the access token or the refresh token ends the grant.
 *
 * Intuit's documentation shows a JSON body, and contradicts itself about whether a form is accepted. The personality
 * intuit rejects a form. Users report that Intuit responds with 400 and an empty body if the token was already revoked.
 * This sandbox assumes the same response for every other invalid token. The bodies of the other errors are also
 * assumptions.
 */
export function revocationRoutes(provider: Provider) {
  return new Hono().post(
    paths.revoke,
    describeRoute({
      operationId: 'revokeToken',
      tags: ['provider'],
      summary: 'Revocation endpoint',
      requestBody: {
        required: true,
        content: Object.fromEntries(
          ['application/json', 'application/x-www-form-urlencoded'].map((type) => [
            type,
            {
              schema: {
                type: 'object' as const,
                required: ['token'],
                properties: { token: { type: 'string' as const } },
              },
            },
          ]),
        ),
      },
      responses: responsesUnderFaults({
        200: 'the grant is ended',
        400: 'no token, or a body of another type; personality intuit: also an invalid token, with an empty body',
        401: 'invalid_client',
      }),
    }),
    underFaults('revoke', provider),
    async (c) => {
      if (!isClient(c.req.header('Authorization'), provider.client)) {
        return clientRejected(c, provider.counters)
      }
      const { accepts, statusOfInvalidToken } =
        revocationBodies[provider.settings.current().revocationBody]
      const token = await accepts(c)
      if (token === null) return c.json({ error: 'invalid_request' }, 400)
      return c.body(null, provider.grants.revokeToken(token) ? 200 : statusOfInvalidToken)
    },
  )
}

const revocationBodies = {
  json: { accepts: tokenOfJson, statusOfInvalidToken: 400 },
  form: { accepts: tokenOfForm, statusOfInvalidToken: 200 }, // RFC 7009 §2.2
} as const satisfies Readonly<Record<Behaviour['revocationBody'], object>>

async function tokenOfForm(c: Context): Promise<string | null> {
  return (await readForm(c))?.get('token') || null
}

async function tokenOfJson(c: Context): Promise<string | null> {
  if (mediaType(c) !== 'application/json') return null
  const token = parseJsonObject(await c.req.text())?.['token']
  return typeof token === 'string' && token !== '' ? token : null
}
