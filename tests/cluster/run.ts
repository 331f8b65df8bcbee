import { once } from 'node:events'
import { randomOf } from '@integration-host/shared/test-support/random'
import { expect } from '../compose/check.ts'
import { createClient } from './client.ts'
import type { Cluster } from './cluster.ts'
import { connectCompanies } from './companies.ts'
import type { Fault } from './faults.ts'
import { type RoundDeps, runRound } from './round.ts'
import type { Round } from './verdict.ts'

const COMPANIES = 60
const RATES = { orders: 8, reads: 30, connects: 0.5 }
/**
 * The lifetime of an access token in seconds. It is short, so that every company needs several refreshes during a
 * fault.
 */
const ACCESS_TOKEN_SECONDS = 8
const CALL_DEADLINE_MS = 15_000
const WARM_UP_MS = 4_000
const RECOVERY_MS = 60_000

/** One fault with the seed of its random choices. */
export interface PlannedRound {
  readonly fault: Fault
  readonly seed: number
}

export interface RunOptions {
  readonly signal: AbortSignal
  /** Called before each fault. If the function returns true, the run ends and no further fault is caused. */
  readonly isTimeOver: () => boolean
  readonly onRound: (round: Round, planned: PlannedRound) => Promise<void>
}

/**
 * Causes the faults one after the other, each under load.
 *
 * @throws {Error} if companies cannot be connected before a fault, or if `signal` is aborted
 */
export async function runFaults(
  cluster: Cluster,
  rounds: readonly PlannedRound[],
  { signal, isTimeOver, onRound }: RunOptions,
): Promise<void> {
  const now = (): number => performance.now()
  const client = createClient({ at: cluster.installation, signal, deadlineMs: CALL_DEADLINE_MS })
  let companies: readonly string[] = []
  for (const [index, planned] of rounds.entries()) {
    if (isTimeOver()) return
    const { fault, seed } = planned
    const { graceSeconds = 0 } = fault
    const settings = { accessTokenSeconds: ACCESS_TOKEN_SECONDS, graceSeconds }
    expect(await client.changeSandbox(settings), 'the sandbox provider does not respond')
    const missing = Array.from({ length: COMPANIES - companies.length }, (_, n) => `c${index}-${n}`)
    const deadline = now() + RECOVERY_MS
    const added = await connectCompanies(client, missing, () => now() > deadline)
    expect(added.length === missing.length, 'not every company could be connected')
    companies = [...companies, ...added]
    const random = randomOf(seedOf(fault, seed))
    const deps: RoundDeps = { client, random, now, signal }
    const round = await runRound(deps, {
      name: fault.name,
      companies,
      rates: RATES,
      prefix: `r${index}`,
      // The warm-up has a random length. Therefore the seed also decides how long after the start of the fault the
      // tokens expire.
      warmUpMs: WARM_UP_MS + random() * ACCESS_TOKEN_SECONDS * 500,
      recoveryMs: RECOVERY_MS,
      disturb: async () => {
        try {
          await Promise.race([fault.cause(cluster, random), abortOf(signal)])
        } finally {
          await cluster.repair()
        }
      },
    })
    await onRound(checkService(fault, round), planned)
    companies = companies.filter((realm) => !round.lockedOut.includes(realm))
  }
}

/** Returns a seed that depends only on the arguments. Earlier faults then do not influence the random choices. */
const seedOf = ({ name }: Fault, seed: number): number =>
  Buffer.from(name).reduce((hash, byte) => Math.imul(hash, 31) + byte, seed)

/**
 * Rejects with the abort reason when `signal` is aborted. This is necessary because a fault may wait for seconds
 * without checking the signal.
 */
async function abortOf(signal: AbortSignal): Promise<never> {
  if (!signal.aborted) await once(signal, 'abort')
  throw signal.reason as Error
}

/**
 * Returns the result of a round: one fault under load. Adds an error if the fault is planned maintenance and a call
 * has failed in all three attempts.
 */
function checkService({ isPlannedWork }: Fault, round: Round): Round {
  const { unservedCalls, error } = round
  if (isPlannedWork === undefined || unservedCalls === 0 || error !== null) return round
  return { ...round, error: `${unservedCalls} calls failed three times` }
}
