/**
 * Connects openid-client with the HTTP client of this service (send-request.ts): creates the openid-client
 * configuration of a request, and converts requests and responses.
 */
import {
  allowInsecureRequests,
  type ClientAuth,
  Configuration,
  customFetch,
  enableNonRepudiationChecks,
  setJwksCache,
} from 'openid-client'
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { DiscoveredProvider } from './discovery.ts'
import { isSuccess, type ProviderHttpResponse, sendRequest } from './send-request.ts'

/** The function that openid-client calls instead of fetch for each HTTP request. */
export type LibraryFetch = NonNullable<Configuration[typeof customFetch]>
/** The method, headers and body of a request that openid-client has built. */
export type LibraryRequest = Parameters<LibraryFetch>[1]

/**
 * The minimum age of a cached key set, in seconds, before oauth4webapi fetches it again. oauth4webapi is the library
 * below openid-client.
 */
const REFETCH_AFTER_SECONDS = 60

/**
 * Authenticates the client by HTTP Basic with form-encoded client id and secret (RFC 6749 §2.3.1).
 *
 * ClientSecretBasic of openid-client also percent-encodes `-`, `_` and `.`, which form encoding leaves unchanged. A
 * provider that compares the header without decoding it would reject a secret with a percent-encoded hyphen. Intuit's
 * SDKs do not encode these characters.
 */
const clientSecretBasic =
  (secret: string): ClientAuth =>
  (_server, { client_id }, _body, headers) => {
    const credentials = `${formEncoded(client_id)}:${formEncoded(secret)}`
    headers.set('authorization', `Basic ${Buffer.from(credentials).toString('base64')}`)
  }

const formEncoded = (text: string): string => new URLSearchParams({ '': text }).toString().slice(1)

/**
 * Returns the openid-client configuration for one request to the provider. openid-client calls `fetch` for each HTTP
 * request.
 */
export function configure(
  { metadata, jwks }: DiscoveredProvider,
  clientId: string,
  secret: Secret,
  fetch: LibraryFetch,
): Configuration {
  const authentication = clientSecretBasic(secret.reveal())
  const configuration = new Configuration(metadata, clientId, undefined, authentication)
  // Tokens are sent over plain http only if DISCOVERY_URL itself is an http URL, because discovery.ts rejects http
  // endpoints in a document that was fetched over https.
  if (new URL(metadata.token_endpoint).protocol === 'http:') allowInsecureRequests(configuration)
  configuration[customFetch] = fetch
  if (metadata.jwks_uri !== undefined) {
    enableNonRepudiationChecks(configuration)
    // The signing keys are fetched before the code exchange. Otherwise the code would be lost if the JWKS were
    // unavailable after the exchange.
    //
    // openid-client fetches the JWKS again if its copy lacks a key, but only if the copy is at least a minute old. The
    // fetch time of the copy is therefore set to a minute ago, so that openid-client can fetch a key that the provider
    // has just added.
    if (jwks !== null)
      setJwksCache(configuration, {
        jwks: { keys: [...jwks.keys] },
        uat: Math.floor(Date.now() / 1_000) - REFETCH_AFTER_SECONDS,
      })
  }
  return configuration
}

/**
 * Sends a request that openid-client has built. `deadlineMs` is in milliseconds.
 *
 * @throws {NoResponse} if no response arrives in time.
 */
export const sendLibraryRequest = (
  { method, headers, body }: LibraryRequest,
  url: string,
  deadlineMs: number,
  proxyFor: ProxyFor,
): Promise<ProviderHttpResponse> => {
  const text = body === undefined || body === null ? null : String(body as URLSearchParams)
  return sendRequest(new URL(url), { method, headers, body: text, deadlineMs }, proxyFor)
}

/**
 * Returns a provider response as the `Response` object that openid-client reads. openid-client accepts only status 200
 * and the content type of JSON, but a proxy may have changed both (for example to 203), so they are replaced.
 */
export const toLibraryResponse = ({ status, headers, text }: ProviderHttpResponse): Response =>
  isSuccess(status)
    ? new Response(text, { headers: { 'content-type': 'application/json' } })
    : new Response(status === 304 ? null : text, { status, headers })
