/** Compares the installation's records with the accepted orders and the connected companies. */
import { setTimeout as delay } from 'node:timers/promises'
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { type Client, isGone } from './client.ts'
import type { Books } from './verdict.ts'

export interface Promised {
  /** The order numbers of the accepted orders. */
  readonly orders: readonly string[]
  readonly companies: readonly string[]
}

export interface BooksOptions {
  readonly client: Client
  readonly now: () => number
  readonly signal: AbortSignal
  /** The time, in milliseconds, within which every order must be completed and every company must be refreshed. */
  readonly deadlineMs: number
}

const CONCURRENCY = 8
const PAUSE_MS = 500

/**
 * Reads the records of the installation until every accepted order is completed and every connected company can be
 * refreshed, or the deadline has passed. Returns what is still wrong.
 *
 * @throws the reason of `signal` if it is aborted.
 */
export async function checkBooks(promised: Promised, options: BooksOptions): Promise<Books> {
  const { client, now, signal } = options
  const deadline = now() + options.deadlineMs
  /** Waits before the next check. Returns false if the deadline has passed. */
  const wait = async (): Promise<boolean> => {
    await delay(PAUSE_MS, undefined, { signal })
    return now() < deadline
  }
  const lost: string[] = []
  const doubled: string[] = []

  /** Returns whether the check of the order is finished. */
  async function isSettled(number: string): Promise<boolean> {
    const run = await client.order(number)
    if (run === 'not found') lost.push(number)
    else if (run?.Status !== 'Completed') return false
    else if (isDoubled(run)) doubled.push(number)
    return true
  }
  const lockedOut: string[] = []
  async function isRefreshed(realm: string): Promise<boolean> {
    const status = await client.refresh(realm)
    if (isGone(status)) lockedOut.push(realm)
    return status === 200 || isGone(status)
  }

  const [stuck, unreachable] = await Promise.all([
    leftOver(promised.orders, isSettled, wait),
    leftOver(promised.companies, isRefreshed, wait),
  ])
  let violations = await client.violations()
  while (violations === null && (await wait())) violations = await client.violations()
  return {
    lost,
    doubled,
    stuck,
    lockedOut: [...lockedOut, ...unreachable],
    violations,
  }
}

/** Returns whether an order was run twice, or one of its steps was recorded as completed twice. */
function isDoubled({ ReplayID, Attempts }: TransactionView): boolean {
  const completed = Attempts.filter(({ Outcome }) => Outcome === 'completed')
  return ReplayID > 0 || new Set(completed.map(({ StepName }) => StepName)).size < completed.length
}

/**
 * Checks each entry repeatedly until `isDone` resolves with true for the entry. Stops when `wait` resolves with false.
 * Returns the entries that are not done.
 */
async function leftOver(
  entries: readonly string[],
  isDone: (entry: string) => Promise<boolean>,
  wait: () => Promise<boolean>,
): Promise<readonly string[]> {
  let left = entries
  for (;;) {
    const next = left[Symbol.iterator]()
    const open: string[] = []
    const worker = async (): Promise<void> => {
      for (const entry of next) if (!(await isDone(entry))) open.push(entry)
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, worker))
    left = open
    if (left.length === 0 || !(await wait())) return left
  }
}
