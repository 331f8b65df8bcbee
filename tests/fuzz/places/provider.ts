/** The responses of the provider's token endpoint to token-service. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Place } from '../doubling.ts'
import { KEY } from '../gateway.ts'
import { startHttpServer } from '../../support/fakes/http-server.ts'
import { startSystem } from '../../support/system.ts'

const HEAD_LENGTHS = [4_500, 15_000]
const BODY_LENGTHS = [15_000, 60_000, 900_000]
const TOKENS = '"access_token":"at","refresh_token":"rt","token_type":"bearer","expires_in":3600'

type Respond = (response: ServerResponse, text: string) => void
const withBody =
  (status: number, type: string, before = '', after = ''): Respond =>
  (response, text) =>
    void response.writeHead(status, { 'Content-Type': type }).end(before + text + after)
const withHeader =
  (name: string, status: number): Respond =>
  (response, text) =>
    void response
      .writeHead(status, { 'Content-Type': 'application/json', [name]: text })
      .end(status === 200 ? `{${TOKENS}}` : '{"error":"invalid_grant"}')

const bodies: readonly (readonly [string, Place['syntax'], Respond])[] = [
  ['the body of a 400', 'json', withBody(400, 'application/json')],
  ['a description', 'json', withBody(400, 'application/json', '{"error_description":', '}')],
  ['a member', 'json', withBody(200, 'application/json', `{${TOKENS},"a":`, '}')],
  ['an id token', 'json', withBody(200, 'application/json', `{${TOKENS},"id_token":`, '}')],
  ['text after the tokens', 'text', withBody(200, 'text/plain', `{${TOKENS}}`)],
  ['a page', 'text', withBody(400, 'text/html')],
]
const heads: readonly (readonly [string, Respond])[] = [
  ['a header', withHeader('X-Any', 400)],
  ['Content-Type', withHeader('Content-Type', 200)],
  ['Content-Encoding', withHeader('Content-Encoding', 400)],
  ['WWW-Authenticate', withHeader('WWW-Authenticate', 403)],
  ['the trace id', withHeader('intuit_tid', 400)],
]

/** Starts a token-service with a fake provider, and returns the places of the provider's responses. */
export async function placesOfProvider(opened: AsyncDisposableStack): Promise<readonly Place[]> {
  let respond: (response: ServerResponse) => void = (response) => response.writeHead(400).end()
  const provider = opened.use(
    await startHttpServer((request: IncomingMessage, response: ServerResponse) => {
      if (request.method === 'POST') return respond(response)
      const at = (path: string): string => `${provider.url}/${path}`
      response.writeHead(200, { 'Content-Type': 'application/json' }).end(
        JSON.stringify({
          issuer: provider.url,
          authorization_endpoint: at('authorize'),
          token_endpoint: at('token'),
          revocation_endpoint: at('revoke'),
          jwks_uri: at('jwks'),
        }),
      )
    }),
  )
  const system = opened.use(await startSystem([]))
  const process = system.start('token-service', {
    LOG_LEVEL: 'error',
    SERVICE_API_KEY: KEY,
    DISCOVERY_URL: `${provider.url}/.well-known/openid-configuration`,
    PROVIDER_PROFILE: 'generic',
  })
  await system.ready('token-service')
  let count = 0
  const place = (
    what: string,
    syntax: Place['syntax'],
    lengths: readonly number[],
    make: Respond,
  ): Place => ({
    name: `token-service: token response with ${what}`,
    process,
    syntax,
    lengths,
    async send(text) {
      count += 1
      respond = (response) => make(response, text)
      // Each adoption of a grant sends one token request.
      const response = await fetch(`${process.url}/imports/grants`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/x-ndjson' },
        body: JSON.stringify({ Realm: String(count), RefreshToken: `rt-${count}` }),
      })
      await response.text()
      if (!response.ok) throw new Error(`a grant was rejected with ${response.status}`)
    },
  })
  return [
    ...bodies.map(([what, syntax, make]) => place(what, syntax, BODY_LENGTHS, make)),
    ...heads.map(([what, make]) => place(what, 'text', HEAD_LENGTHS, make)),
  ]
}
