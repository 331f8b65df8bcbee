/**
 * The load of a round. It behaves as an application does: an order is queued again until it is accepted, and a
 * company whose token cannot be read is read again later.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import type { Random } from '@integration-host/shared/test-support/random'
import { type Client, isGone } from './client.ts'

/** How many calls of each kind are made per second. */
export interface Rates {
  readonly orders: number
  readonly reads: number
  /** Connections of new companies. A company that is connected while a backend fails must exist afterwards. */
  readonly connects: number
}

/** What the load has done so far. Times are values of `LoadOptions.now`, in milliseconds. */
export interface Ledger {
  /** The numbers of the orders that were accepted. */
  readonly accepted: readonly string[]
  /** The realms that were connected by this load. */
  readonly connected: readonly string[]
  readonly calls: number
  readonly failedCalls: number
  /** How often each kind of call failed, by the kind and the status of the response, such as `order 503`. */
  readonly failures: Readonly<Record<string, number>>
  /** The number of calls that failed three times in a row. An application would not repeat such a call further. */
  readonly unservedCalls: number
  /** When the last failed call ended; `null` if none has failed. */
  readonly lastFailureAt: number | null
}

export interface Load {
  readonly ledger: Ledger
  /**
   * Stops the load, and resolves when no call is in flight. An order that was not accepted yet is queued again for at
   * most `forMs` milliseconds. An order that is not accepted even then is not listed in `Ledger.accepted`.
   */
  stop(forMs: number): Promise<void>
}

export interface LoadOptions {
  readonly client: Client
  /** The realms whose tokens are read. */
  readonly companies: readonly string[]
  readonly rates: Rates
  /** The prefix of every order number and of every new realm. It must be unique for the installation. */
  readonly prefix: string
  readonly random: Random
  readonly now: () => number
}

/** The pause before the first repetition of a call. It doubles with each repetition, so that the load stays bounded. */
const RETRY_MS = 500
const MAX_RETRY_MS = 4_000
/**
 * A call that failed this many times counts as unserved. After that, a call that queues an order is still repeated, and
 * any other call is not.
 */
const ATTEMPTS = 3
/**
 * The maximum number of reads in flight. Further reads are skipped, so that a stalled service does not exhaust the
 * memory.
 */
const MAX_READS_IN_FLIGHT = 200
/** Every fifth read goes through the gateway; the other reads go to token-service. */
const READS_PER_GATEWAY_CALL = 5

export function startLoad(options: LoadOptions): Load {
  const { client, rates, prefix, random, now } = options
  let readable = options.companies
  const stopping = new AbortController()
  const accepted: string[] = []
  const connected: string[] = []
  const inFlight = createPendingWork()
  let calls = 0
  let failedCalls = 0
  let unservedCalls = 0
  const failures: Record<string, number> = {}
  let lastFailureAt: number | null = null
  let readsInFlight = 0
  let retryUntil = Number.POSITIVE_INFINITY

  function counted(isOk: boolean, kind: string, status: number | null): boolean {
    calls += 1
    if (!isOk) {
      failedCalls += 1
      const name = `${kind} ${status ?? 'without response'}`
      failures[name] = (failures[name] ?? 0) + 1
      lastFailureAt = now()
    }
    return isOk
  }

  /** Repeats a call until it succeeds or `isEnough` returns true. Returns whether it succeeded. */
  async function repeated(
    call: () => Promise<boolean>,
    isEnough: (attempts: number) => boolean,
  ): Promise<boolean> {
    for (let attempts = 1; ; attempts++) {
      if (await call()) return true
      if (attempts === ATTEMPTS) unservedCalls += 1
      if (isEnough(attempts) || now() > retryUntil) return false
      await delay(Math.min(RETRY_MS * 2 ** (attempts - 1), MAX_RETRY_MS))
    }
  }

  async function order(number: string): Promise<void> {
    const queue = async (): Promise<boolean> => {
      const status = await client.queueOrder(number)
      return counted(status !== null && status < 300, 'order', status)
    }
    if (await repeated(queue, () => false)) accepted.push(number)
  }
  async function read(turn: number): Promise<void> {
    const realm = readable[Math.floor(random() * readable.length)]
    if (realm === undefined || readsInFlight >= MAX_READS_IN_FLIGHT) return
    readsInFlight += 1
    const isGatewayCall = turn % READS_PER_GATEWAY_CALL === 0
    let status: number | null = null
    const get = async (): Promise<boolean> => {
      status = await (isGatewayCall ? client.readCompany(realm) : client.readToken(realm))
      return counted(status === 200, isGatewayCall ? 'company' : 'token', status)
    }
    await repeated(get, (attempts) => isGone(status) || attempts === ATTEMPTS)
    readsInFlight -= 1
    // The grant of this company has ended, and the check after the round reports it. Further reads for this company
    // would always fail, and would hide when the other calls recovered. Therefore the reads are stopped.
    if (isGone(status)) readable = readable.filter((other) => other !== realm)
  }
  // The whole authorization is repeated, because an authorization code can be exchanged only once.
  async function connect(realm: string): Promise<void> {
    const authorize = async (): Promise<boolean> =>
      counted(await client.connect(realm), 'connect', null)
    if (await repeated(authorize, (attempts) => attempts === ATTEMPTS)) connected.push(realm)
  }

  /** Calls `work` `perSecond` times a second. The argument of `work` is the number of the call, counted from 0. */
  async function repeat(perSecond: number, work: (turn: number) => Promise<void>): Promise<void> {
    const startedAt = now()
    for (let turn = 0; perSecond > 0 && !stopping.signal.aborted; turn++) {
      void inFlight.add(work(turn))
      const pauseMs = Math.max(0, startedAt + ((turn + 1) / perSecond) * 1_000 - now())
      await delay(pauseMs, undefined, { signal: stopping.signal }).catch(() => {})
    }
  }
  const running = Promise.all([
    repeat(rates.orders, (turn) => order(`${prefix}-${turn}`)),
    repeat(rates.reads, read),
    // The realms must differ from those that were connected before the load.
    repeat(rates.connects, (turn) => connect(`${prefix}-new-${turn}`)),
  ])
  return {
    ledger: {
      accepted,
      connected,
      get calls() {
        return calls
      },
      get failedCalls() {
        return failedCalls
      },
      get unservedCalls() {
        return unservedCalls
      },
      failures,
      get lastFailureAt() {
        return lastFailureAt
      },
    },
    async stop(forMs) {
      retryUntil = now() + forMs
      stopping.abort()
      await running
      await inFlight.ended()
    },
  }
}
