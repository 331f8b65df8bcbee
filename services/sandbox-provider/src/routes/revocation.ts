import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import type { Grants } from '../grant/grants.ts'
import { paths } from './addresses.ts'
import {
  type Client,
  clientRefused,
  isClient,
  mediaType,
  readForm,
} from './client-authentication.ts'
import { responsesUnderFaults, underFaults, type UnderFaultsDeps } from './under-faults.ts'

export interface RevocationDeps extends UnderFaultsDeps {
  readonly client: Client
  readonly grants: Grants
}

/**
 * `POST /v2/oauth2/tokens/revoke`, body `{token}` as JSON (Intuit's) or a form (RFC 7009). Either token ends
 * the whole grant. An unknown one is answered 400 as Intuit does, where RFC 7009 §2.2 would say 200.
 */
export function revocationRoutes(deps: RevocationDeps) {
  return new Hono().post(
    paths.revoke,
    describeRoute({
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
        400: 'no token, or an unknown one',
        401: 'invalid_client',
      }),
    }),
    underFaults('revoke', deps),
    async (c) => {
      if (!isClient(c.req.header('Authorization'), deps.client)) {
        return clientRefused(c, deps.counters)
      }
      const token = await readToken(c)
      if (token === null) return c.json({ error: 'invalid_request' }, 400)
      if (!deps.grants.revokeToken(token)) return c.json({ error: 'invalid_token' }, 400)
      return c.body(null, 200)
    },
  )
}

async function readToken(c: Context): Promise<string | null> {
  if (mediaType(c) !== 'application/json') return (await readForm(c))?.get('token') || null
  try {
    const body: unknown = JSON.parse(await c.req.text())
    const token = typeof body === 'object' && body !== null && 'token' in body ? body.token : null
    return typeof token === 'string' && token !== '' ? token : null
  } catch {
    return null
  }
}
