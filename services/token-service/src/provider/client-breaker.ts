/**
 * Stops calling the token endpoint while the provider rejects the application's own client credentials
 * (`invalid_client`, RFC 6749 §5.2, or 401): no realm is at fault, and further rejected calls help none.
 *
 * One call at a time goes through as a probe, first after 1 s and then after twice as long as before, up to
 * 60 s, so that a passing rejection holds the companies up for about a second and a lasting one costs the
 * provider one call a minute. The breaker starts no call itself: the first one that needs a token once the
 * time has come is the probe. The first response that shows an accepted client lets all calls through.
 */
import type { ExchangeOutcome, Provider, TokenOutcome } from './provider.ts'

const FIRST_PROBE_MS = 1_000
const MAX_PROBE_MS = 60_000

type ClientRejected = Extract<TokenOutcome, { kind: 'client_refused' }>

/** Outcomes of a request whose client the provider has accepted. */
const SHOW_ACCEPTED_CLIENT: ReadonlySet<ExchangeOutcome['kind']> = new Set([
  'granted',
  'refused',
  'invalid_id_token',
])

/** The state while the provider rejects the client. */
interface Rejection {
  readonly response: ClientRejected
  probeDelayMs: number
  nextProbeAt: number
  isProbing: boolean
}

export interface BreakerOptions {
  /** Milliseconds of a clock that only moves forward. */
  readonly now: () => number
  readonly onChange?: (isRejected: boolean) => void
}

/** The provider behind a circuit breaker. */
export interface GuardedProvider extends Provider {
  /** Milliseconds until a call may go through; 0 while the provider accepts the client, or a probe is due. */
  readonly heldBackMs: () => number
}

export function breakOnRejectedClient(
  provider: Provider,
  { now, onChange }: BreakerOptions,
): GuardedProvider {
  let rejection: Rejection | null = null

  function heldBackMs(): number {
    if (rejection === null) return 0
    // The outcome of a probe in flight is known soon, whatever the delay after it would be.
    if (rejection.isProbing) return FIRST_PROBE_MS
    return Math.max(0, rejection.nextProbeAt - now())
  }

  async function guarded<Outcome extends ExchangeOutcome>(
    call: () => Promise<Outcome | ClientRejected>,
  ): Promise<Outcome | ClientRejected> {
    const probed = rejection
    if (probed !== null) {
      const retryAfterMs = heldBackMs()
      // This call was not sent, so the trace id of the rejected one is not its own.
      if (retryAfterMs > 0) return { ...probed.response, traceId: null, retryAfterMs }
      probed.isProbing = true
    }
    let outcome: Outcome | ClientRejected
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
        // Only a probe that was rejected doubles the delay, not calls that were already in flight with the
        // first one that was rejected.
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
    exchangeCode: (exchange) => guarded(() => provider.exchangeCode(exchange)),
    refresh: (refreshToken) => guarded(() => provider.refresh(refreshToken)),
  }
}
