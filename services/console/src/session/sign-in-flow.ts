/**
 * Encrypts the data of a sign-in into the cookie of the browser that begins it, so that the console stores nothing while
 * the person is at the OpenID provider. Anyone can begin sign-ins, so stored ones could fill the store.
 *
 * The cookie is an envelope (AES-256-GCM). Its key is derived from the service key of the console, which all replicas
 * have: each replica completes the sign-ins that another one began. It has at most 1,100 characters.
 */
import { DecryptionError, keyRingOf } from '@integration-host/shared/secrets/envelope'
import type { Secret } from '@integration-host/shared/secrets/secret'

export interface SignInFlow {
  readonly state: string
  readonly nonce: string
  /** The PKCE code verifier (RFC 7636). */
  readonly verifier: string
  /** The page that is shown after the sign-in. */
  readonly returnTo: string
  /** The digest of the session whose person the provider confirms; absent at a sign-in. */
  readonly session?: string
}

/** The longest time that a person may spend at the provider. */
export const FLOW_SECONDS = 600

export interface FlowSeal {
  seal(flow: SignInFlow): string
  /** Returns the flow; `null` if it has expired, or this console has not sealed it. */
  open(sealed: string): SignInFlow | null
}

const PLACE = { name: 'sign-in', field: 'flow', version: 1 }

/** `now` returns epoch milliseconds, because replicas compare it. */
export function createFlowSeal(serviceKey: Secret, now: () => number): FlowSeal {
  const keys = keyRingOf(serviceKey, 'integration-host console sign-in')
  return {
    seal: ({ state, nonce, verifier, returnTo, session = '' }) =>
      keys.seal(
        JSON.stringify([
          now() + FLOW_SECONDS * 1_000,
          state,
          nonce,
          verifier,
          returnTo,
          session,
        ] satisfies Members),
        PLACE,
      ),
    open(sealed) {
      try {
        // The authentication tag proves that the console wrote the members.
        const members = JSON.parse(keys.open(sealed, PLACE)) as Members
        // A replica of the release before seals no session.
        const [expiresAt, state, nonce, verifier, returnTo, session = ''] = members
        const flow = { state, nonce, verifier, returnTo, ...(session !== '' && { session }) }
        return now() < expiresAt ? flow : null
      } catch (error) {
        if (error instanceof DecryptionError) return null
        throw error
      }
    },
  }
}

type Members = [
  expiresAt: number,
  state: string,
  nonce: string,
  verifier: string,
  returnTo: string,
  session?: string,
]
