/** Starts an authorization and validates the callback of the provider: state, browser, issuer and realm. */
import { randomBytes } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import { isLoopback } from '@integration-host/shared/http/loopback'
import { Secret } from '@integration-host/shared/secrets/secret'
import type { Provider } from '../provider/provider.ts'
import type { AuthorizationRequest, AuthorizationStore, CodeClaim } from './authorization-store.ts'
import { digest } from './digest.ts'

/** Milliseconds that a state is valid. */
export const AUTHORIZATION_TTL_MS = 10 * 60_000

export interface StartedAuthorization {
  readonly url: string
  readonly state: string
  readonly expiresAt: number
}

/** The parameters of a callback, in valid syntax but not checked against an authorization request yet. */
export interface Callback {
  readonly state: string
  readonly code: string | null
  readonly realm: string | null
  readonly error: string | null
  readonly issuer: string | null
  /** The authorization cookie of the browser that sends the callback. */
  readonly browser: string | null
}

/** A callback that belongs to an authorization request of this service. */
export type CheckedCallback =
  | {
      readonly kind: 'granted'
      readonly request: AuthorizationRequest
      readonly code: string
      readonly realm: string
    }
  | { readonly kind: 'denied'; readonly request: AuthorizationRequest }
  /** A second, equal callback while the code exchange of the first one is still in flight. */
  | { readonly kind: 'repeated'; readonly code: string; readonly realm: string }

export interface AuthorizationDeps {
  readonly authorizations: AuthorizationStore
  readonly provider: Pick<Provider, 'authorizationUrl' | 'issuer'>
  /** The requested scopes, space-delimited (RFC 6749 §3.3). */
  readonly scope: string
  /** The scopes that make the provider's callback name a company; empty if it always names one. */
  readonly realmScopes: readonly string[]
  /** The origins that `return_to` may have; `null` allows only http on the loopback interface. */
  readonly returnToOrigins: readonly string[] | null
  readonly now: () => number
  readonly sleep: (ms: number) => Promise<void>
}

export interface Authorization {
  /** @throws {IntegrationError} `invalid_request`, `provider_unavailable`, `store_unavailable`. */
  start(wanted: {
    readonly returnTo: string | null
    readonly realm: string | null
    readonly browser: string | null
  }): Promise<StartedAuthorization>
  /** Uses the state up. @throws {IntegrationError} `authorization_invalid`, `realm_mismatch`, `store_unavailable`. */
  check(callback: Callback): Promise<CheckedCallback>
}

export function createAuthorization(deps: AuthorizationDeps): Authorization {
  const { authorizations, provider, now } = deps

  /**
   * Resolves with the claim of a code, or with `null`. Reads several times: of two equal callbacks, the second one may
   * arrive after the first has used the state and before it has claimed the code.
   */
  async function claimOf(code: string): Promise<CodeClaim | null> {
    for (let reads = 1; ; reads += 1) {
      const claim = await authorizations.readCode(code)
      if (claim !== null || reads === CLAIM_READS) return claim
      await deps.sleep(CLAIM_READ_PAUSE_MS)
    }
  }

  return {
    async start({ returnTo, realm, browser }) {
      if (returnTo !== null && !isReturnable(returnTo, deps.returnToOrigins)) {
        throw new IntegrationError(
          'invalid_request',
          'return_to leads to an origin that is not allowed',
        )
      }
      const state = randomBytes(32).toString('base64url')
      const nonce = randomBytes(32).toString('base64url')
      const codeVerifier = randomBytes(32).toString('base64url') // RFC 7636 §4.1: 43 characters
      const { url, usesPkce } = await provider.authorizationUrl({
        state,
        nonce,
        codeVerifier: new Secret(codeVerifier),
      })
      const expiresAt = now() + AUTHORIZATION_TTL_MS
      await authorizations.begin(
        state,
        {
          nonce,
          codeVerifier: usesPkce ? codeVerifier : null,
          realm,
          returnTo,
          browser: browser === null ? null : digest(browser),
        },
        AUTHORIZATION_TTL_MS,
      )
      return { url, state, expiresAt }
    },

    async check(callback) {
      const { state, code, realm } = callback
      const request = await authorizations.consume(state)
      if (request === null) {
        if (code !== null && realm !== null && isRepetition(await claimOf(code), callback)) {
          return { kind: 'repeated', code, realm }
        }
        throw invalid('the state is unknown, used or expired')
      }
      // The state is used up from here on, so that an attacker who guesses has one attempt.
      if (
        request.browser !== null &&
        (callback.browser === null || digest(callback.browser) !== request.browser)
      ) {
        throw invalid('the authorization was started in another browser')
      }
      const issuer = await provider.issuer()
      const isForeign =
        callback.issuer === null ? issuer.isAlwaysSent : callback.issuer !== issuer.identifier
      if (isForeign) throw invalid('the response comes from another provider') // RFC 9207 §2.4
      if (callback.error !== null) return { kind: 'denied', request }
      if (code === null) throw invalid('the callback has no code')
      if (realm === null) throw noCompany(deps)
      if (request.realm !== null && request.realm !== realm) {
        throw new IntegrationError(
          'realm_mismatch',
          `the authorization was for company ${request.realm}, another one was chosen`,
        )
      }
      return { kind: 'granted', request, code, realm }
    },
  }
}

/** The first callback claims its code a few milliseconds after it has used the state, later on a busy machine. */
const CLAIM_READS = 5
const CLAIM_READ_PAUSE_MS = 100

/** Whether a callback repeats the one that made the claim, as after a reload: state, code and realm are equal. */
const isRepetition = (claim: CodeClaim | null, { state, realm }: Callback): boolean =>
  claim?.result === null && claim.state === digest(state) && claim.realm === realm

/** Returns the error for a callback without a realm. RFC 6749 has no such parameter; Intuit adds it for certain scopes. */
function noCompany({ scope, realmScopes }: AuthorizationDeps): IntegrationError {
  const hasScope =
    realmScopes.length === 0 || scope.split(' ').some((name) => realmScopes.includes(name))
  return new IntegrationError(
    'authorization_invalid',
    hasScope
      ? 'the provider named no company (realmId) in the callback; nothing was stored. Start the authorization again and choose a company'
      : `the provider named no company (realmId) in the callback, because SCOPE has none of ${realmScopes.join(', ')}; nothing was stored. Add one to SCOPE, restart token-service, and start the authorization again`,
  )
}

const invalid = (why: string): IntegrationError =>
  new IntegrationError('authorization_invalid', `${why}; start the authorization again`)

/** Whether a browser may be redirected to `returnTo`. Prevents an open redirect (RFC 9700 §4.11). */
function isReturnable(returnTo: string, origins: readonly string[] | null): boolean {
  // The WHATWG URL parser accepts backslashes, tabs and newlines, which other parsers read differently.
  if (!/^[\x21-\x5b\x5d-\x7e]{1,2048}$/.test(returnTo) || !URL.canParse(returnTo)) return false
  const url = new URL(returnTo)
  if (url.username !== '' || url.password !== '') return false
  if (origins !== null) return origins.includes(url.origin)
  return url.protocol === 'http:' && isLoopback(url.hostname)
}
