import { Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { personalities } from '../control/personalities.ts'
import type { SandboxSettings } from '../control/settings.ts'
import { type Addresses, issuerOf, paths, type Provider } from '../provider.ts'
import { responsesUnderFaults, underFaults } from './under-faults.ts'

// Intuit's documents and SDKs, and other integrations, request the discovery document at these paths. No known client
// of Intuit requests the well-known path of RFC 8414.
const SPELLINGS = {
  openid_configuration: 'getDiscoveryDocument',
  'openid-configuration': 'getDiscoveryDocumentHyphenated',
  openid_sandbox_configuration: 'getSandboxDiscoveryDocument',
  'openid-sandbox-configuration': 'getSandboxDiscoveryDocumentHyphenated',
}

/** The route `GET /.well-known/openid_configuration`. */
export function discoveryRoutes(provider: Provider) {
  const routes = new Hono()
  for (const [spelling, operationId] of Object.entries(SPELLINGS)) {
    routes.get(
      `/.well-known/${spelling}`,
      describeRoute({
        operationId,
        tags: ['provider'],
        summary: 'Discovery document',
        responses: responsesUnderFaults({
          200: 'endpoints and what they support',
        }),
      }),
      underFaults('discovery', provider),
      (c) => c.json(discoveryDocument(provider.addresses(), provider.settings.current())),
    )
  }
  return routes
}

const CLAIMS = ['aud', 'exp', 'iat', 'iss', 'realmid', 'sub']

/**
 * Returns the discovery document. It has the members of Intuit's document, the members that the personality adds, and
 * members for the features that the current settings enable.
 */
function discoveryDocument(addresses: Addresses, settings: SandboxSettings) {
  const { base, browser } = addresses
  return {
    issuer: issuerOf(addresses),
    authorization_endpoint: browser + paths.authorize,
    token_endpoint: base + paths.token,
    userinfo_endpoint: base + paths.userinfo,
    revocation_endpoint: base + paths.revoke,
    jwks_uri: base + paths.jwks,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    token_endpoint_auth_methods_supported: settings.clientSecretPost
      ? ['client_secret_post', 'client_secret_basic']
      : ['client_secret_basic'],
    claims_supported: settings.nonce ? [...CLAIMS, 'nonce'] : CLAIMS,
    ...(settings.responseIssuer && { authorization_response_iss_parameter_supported: true }),
    ...(settings.pkce && { code_challenge_methods_supported: ['S256'] }),
    ...(settings.discoveryNamesAccountingUrl && { accounting_url: base }),
    ...personalities[settings.personality].discovery,
  }
}
