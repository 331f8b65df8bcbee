import type { RealmRates } from './throttle.ts'

/** What an accounting provider takes from one application for one company. */
export interface ProviderLimits {
  readonly calls: RealmRates
  /** Of them so many a minute to `…/batch`. */
  readonly batchesPerMinute: number
  /** How long a realm rests after a 429 that names no time of its own. */
  readonly holdSeconds: number
}

const UNKNOWN = 1_000_000

/** By name, as in `PROVIDER_PROFILE`; a setting of its own wins over each number. */
export const providerProfiles = {
  // developer.intuit.com, "API call limits and throttles" (sandbox companies included since 2025-09-15).
  intuit: {
    calls: { perSecond: 10, perMinute: 500, concurrent: 10 },
    batchesPerMinute: 40,
    holdSeconds: 60,
  },
  /** Nothing is known: only what a 429 says counts. */
  unlimited: {
    calls: { perSecond: 100_000, perMinute: UNKNOWN, concurrent: 10_000 },
    batchesPerMinute: UNKNOWN,
    holdSeconds: 60,
  },
} as const satisfies Readonly<Record<string, ProviderLimits>>

/** The batches alone: they share seconds and places with all other calls. */
export const batchRates = ({ calls, batchesPerMinute }: ProviderLimits): RealmRates => ({
  perSecond: batchesPerMinute,
  perMinute: batchesPerMinute,
  concurrent: calls.concurrent,
})
