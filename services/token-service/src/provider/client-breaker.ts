import type { Provider, TokenOutcome } from './provider.ts'

/** At most one call a minute asks whether the provider takes the client again. */
const PROBE_MS = 60_000

/**
 * Keeps all realms' calls back while the provider refuses the application itself (`invalid_client`): no
 * realm is to blame, and a thousand refused calls a second make nothing better. One call per
 * `probeMs` goes through; the first that is not refused opens the way for all.
 */
export function breakOnRefusedClient(
  provider: Provider,
  {
    now,
    probeMs = PROBE_MS,
    onChange,
  }: {
    readonly now: () => number
    readonly probeMs?: number
    readonly onChange?: (isRefused: boolean) => void
  },
): Provider {
  let refusedUntil: number | null = null
  let answer: Extract<TokenOutcome, { kind: 'client_refused' }> | null = null

  async function guarded(call: () => Promise<TokenOutcome>): Promise<TokenOutcome> {
    const at = now()
    if (refusedUntil !== null && answer !== null && at < refusedUntil) {
      return { ...answer, retryAfterMs: refusedUntil - at }
    }
    // Whoever comes after the probe waits for the next one.
    if (refusedUntil !== null) refusedUntil = at + probeMs
    const outcome = await call()
    if (outcome.kind === 'client_refused') {
      if (refusedUntil === null) onChange?.(true)
      refusedUntil = now() + probeMs
      answer = outcome
      return { ...outcome, retryAfterMs: probeMs }
    }
    if (refusedUntil !== null && (outcome.kind === 'granted' || outcome.kind === 'refused')) {
      refusedUntil = null
      onChange?.(false)
    }
    return outcome
  }

  return {
    ...provider,
    exchangeCode: (exchange) => guarded(() => provider.exchangeCode(exchange)),
    refresh: (refreshToken) => guarded(() => provider.refresh(refreshToken)),
  }
}
