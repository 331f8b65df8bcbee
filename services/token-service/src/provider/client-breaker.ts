import type { ExchangeOutcome, Provider, TokenOutcome } from './provider.ts'

/** At most one call a minute asks whether the provider takes the client again. */
const PROBE_MS = 60_000

type ClientRefused = Extract<TokenOutcome, { kind: 'client_refused' }>

/** Outcomes of a request whose client the provider has accepted. */
const SHOW_ACCEPTED_CLIENT: ReadonlySet<ExchangeOutcome['kind']> = new Set([
  'granted',
  'refused',
  'invalid_id_token',
])

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
  let answer: ClientRefused | null = null

  async function guarded<Outcome extends ExchangeOutcome>(
    call: () => Promise<Outcome | ClientRefused>,
  ): Promise<Outcome | ClientRefused> {
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
    if (refusedUntil !== null && SHOW_ACCEPTED_CLIENT.has(outcome.kind)) {
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
