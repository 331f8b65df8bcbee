/** One round: load, a fault, recovery, and the check of the installation's records. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '@integration-host/shared/test-support/random'
import { checkBooks } from './books.ts'
import type { Client } from './client.ts'
import { type Load, type Rates, startLoad } from './load.ts'
import type { Round } from './verdict.ts'

export interface RoundDeps {
  readonly client: Client
  readonly random: Random
  readonly now: () => number
  /** Aborting this signal ends the round without a result. */
  readonly signal: AbortSignal
}

export interface RoundOptions {
  readonly name: string
  readonly companies: readonly string[]
  readonly rates: Rates
  /** The prefix of the order numbers of this round. It must be unique for the installation. */
  readonly prefix: string
  /** How long the load runs before the fault, in milliseconds. */
  readonly warmUpMs: number
  /** How long an order or a company may take to recover after the load has ended, in milliseconds. */
  readonly recoveryMs: number
  /** Causes the fault, and resolves when it has been repaired. */
  readonly disturb: (load: Load) => Promise<void>
}

/** After the repair of the fault, the load continues until no call has failed for this time. */
const CALM_MS = 3_000

/**
 * Runs a round. If `disturb` fails, the records are still checked, and the result contains the error.
 *
 * @throws the reason of `signal` if it is aborted.
 */
export async function runRound(deps: RoundDeps, options: RoundOptions): Promise<Round> {
  const { client, now, signal } = deps
  const { companies, rates, prefix, recoveryMs } = options
  const reusesBefore = (await client.tokenReuses()) ?? 0
  const load = startLoad({ client, companies, rates, prefix, random: deps.random, now })
  const { ledger } = load
  let faultAt = now()
  let error: string | null = null
  try {
    await delay(options.warmUpMs, undefined, { signal })
    faultAt = now()
    await options.disturb(load)
    await calm(load, deps, recoveryMs)
  } catch (failure) {
    error = failure instanceof Error ? failure.message : String(failure)
  } finally {
    await load.stop(signal.aborted ? 0 : recoveryMs)
  }
  signal.throwIfAborted()
  const realms = [...companies, ...ledger.connected]
  const books = await checkBooks(
    { orders: ledger.accepted, companies: realms },
    { client, now, signal, deadlineMs: recoveryMs },
  )
  return {
    ...books,
    name: options.name,
    orders: ledger.accepted.length,
    companies: realms.length,
    tokenReuses: ((await client.tokenReuses()) ?? reusesBefore) - reusesBefore,
    calls: ledger.calls,
    failedCalls: ledger.failedCalls,
    unservedCalls: ledger.unservedCalls,
    failures: ledger.failures,
    recoverySeconds: Math.max(0, (ledger.lastFailureAt ?? faultAt) - faultAt) / 1_000,
    error,
  }
}

/** Resolves when no call has failed for `CALM_MS`, or after `forMs` milliseconds. */
async function calm({ ledger }: Load, { now, signal }: RoundDeps, forMs: number): Promise<void> {
  const startedAt = now()
  const lastFailureAt = (): number => Math.max(startedAt, ledger.lastFailureAt ?? 0)
  while (now() < lastFailureAt() + CALM_MS && now() < startedAt + forMs)
    await delay(100, undefined, { signal })
}
