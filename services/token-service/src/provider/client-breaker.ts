/**
 * A circuit breaker that blocks refreshes while the provider rejects CLIENT_ID and CLIENT_SECRET (`invalid_client`, RFC
 * 6749 §5.2). No credential of a company causes this error, so every further refresh would be rejected too.
 *
 * The breaker itself sends no calls. It lets one call of a caller through as a probe. The first probe is sent
 * after 1 s, and each further probe after twice the previous delay, up to 60 s. If the provider rejects the client only
 * briefly, refreshes are thus delayed by about a second. If the rejection lasts long, the provider gets only one call
 * a minute. The breaker closes at the first response that shows that the provider accepts the client.
 *
 * Code exchanges bypass the breaker: their results neither open nor close it. Any browser can call the callback with a
 * made-up code, and a provider may reject an unknown code with `invalid_client` or 401. If such a rejection counted, a
 * browser without a key could stop the refreshes of all companies. Code exchanges are not blocked either, because an
 * installation without credentials sends no refresh that could close the breaker again.
 */
import type { Provider, TokenOutcome } from './provider.ts'

const FIRST_PROBE_MS = 1_000
const MAX_PROBE_MS = 60_000

type ClientRejected = Extract<TokenOutcome, { kind: 'client_refused' }>

/** The outcomes that occur only if the provider has accepted the client. */
const SHOW_ACCEPTED_CLIENT: ReadonlySet<TokenOutcome['kind']> = new Set(['granted', 'refused'])

/** The state while the provider rejects the client. */
interface Rejection {
  readonly response: ClientRejected
  probeDelayMs: number
  nextProbeAt: number
  isProbing: boolean
}

export interface BreakerOptions {
  /** Returns the time in milliseconds of a clock that only moves forward. */
  readonly now: () => number
  readonly onChange?: (isRejected: boolean) => void
}

/** The provider behind a circuit breaker. */
export interface GuardedProvider extends Provider {
  /**
   * Returns the milliseconds until the breaker allows the next call; 0 if the provider accepts the client or a probe is
   * due.
   */
  readonly heldBackMs: () => number
  /** Whether the provider has rejected the client and has not accepted it since. */
  readonly isClientRejected: () => boolean
}

export function breakOnRejectedClient(
  provider: Provider,
  { now, onChange }: BreakerOptions,
): GuardedProvider {
  let rejection: Rejection | null = null

  function heldBackMs(): number {
    if (rejection === null) return 0
    // Callers need not wait until the next probe, because the probe in flight soon decides whether calls are allowed.
    if (rejection.isProbing) return FIRST_PROBE_MS
    return Math.max(0, rejection.nextProbeAt - now())
  }

  async function guarded(call: () => Promise<TokenOutcome>): Promise<TokenOutcome> {
    const probed = rejection
    if (probed !== null) {
      const retryAfterMs = heldBackMs()
      // The result has no trace id, because this call is not sent. The only known trace id belongs to the rejected
      // call.
      if (retryAfterMs > 0) return { ...probed.response, traceId: null, retryAfterMs }
      probed.isProbing = true
    }
    let outcome: TokenOutcome
    try {
      outcome = await call()
    } finally {
      if (probed !== null) {
        probed.isProbing = false
        probed.nextProbeAt = now() + probed.probeDelayMs
      }
    }
    if (outcome.kind === 'client_refused') {
      if (rejection === null) {
        const probeDelayMs = FIRST_PROBE_MS
        const nextProbeAt = now() + probeDelayMs
        rejection = { response: outcome, probeDelayMs, nextProbeAt, isProbing: false }
        onChange?.(true)
      } else if (rejection === probed) {
        // Only a rejected probe doubles the delay. A rejected call that was already in flight when the breaker opened
        // does not double the delay.
        probed.probeDelayMs = Math.min(2 * probed.probeDelayMs, MAX_PROBE_MS)
        probed.nextProbeAt = now() + probed.probeDelayMs
      }
      return { ...outcome, retryAfterMs: heldBackMs() }
    }
    if (rejection !== null && SHOW_ACCEPTED_CLIENT.has(outcome.kind)) {
      rejection = null
      onChange?.(false)
    }
    return outcome
  }

  return {
    ...provider,
    heldBackMs,
    isClientRejected: () => rejection !== null,
    refresh: (refreshToken) => guarded(() => provider.refresh(refreshToken)),
  }
}
