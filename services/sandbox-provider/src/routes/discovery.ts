import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { supportedScopes } from '../authorization/authorization-request.ts'
import { type Addresses, issuerOf, paths } from './addresses.ts'
import { responsesUnderFaults, underFaults, type UnderFaultsDeps } from './under-faults.ts'

export interface DiscoveryDeps extends UnderFaultsDeps {
  readonly addresses: () => Addresses
}

// All seen in the wild; none is the suffix of RFC 8414.
const SPELLINGS = [
  'openid_configuration',
  'openid-configuration',
  'openid_sandbox_configuration',
  'openid-sandbox-configuration',
]

/** `GET /.well-known/openid_configuration`, with `accounting_url` beside what OpenID Connect Discovery names. */
export function discoveryRoutes(deps: DiscoveryDeps) {
  const routes = new Hono()
  for (const spelling of SPELLINGS) {
    routes.get(
      `/.well-known/${spelling}`,
      describeRoute({
        tags: ['provider'],
        summary: 'Discovery document',
        responses: responsesUnderFaults({
          200: 'endpoints, what they support, and accounting_url',
        }),
      }),
      underFaults('discovery', deps),
      (c) => c.json(discoveryDocument(deps.addresses(), deps.settings.current().pkce)),
    )
  }
  return routes
}

function discoveryDocument(addresses: Addresses, pkce: boolean) {
  const { base, browser } = addresses
  return {
    issuer: issuerOf(addresses),
    authorization_endpoint: browser + paths.authorize,
    token_endpoint: base + paths.token,
    userinfo_endpoint: base + paths.userinfo,
    revocation_endpoint: base + paths.revoke,
    jwks_uri: base + paths.jwks,
    response_types_supported: ['code'],
    grant_types_supported: ['authorization_code', 'refresh_token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    scopes_supported: supportedScopes,
    token_endpoint_auth_methods_supported: ['client_secret_basic'],
    revocation_endpoint_auth_methods_supported: ['client_secret_basic'],
    claims_supported: ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub', 'auth_time', 'nonce'],
    authorization_response_iss_parameter_supported: true, // RFC 9207
    ...(pkce && { code_challenge_methods_supported: ['S256'] }),
    accounting_url: base,
  }
}
