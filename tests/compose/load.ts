import { setTimeout as delay } from 'node:timers/promises'
import type { Installation } from '../../host/src/story.ts'

const EVERY_MS = 100
const CALL_DEADLINE_MS = 15_000

/**
 * A load generator that constantly queues orders and reads a company. It repeats each order until the order is
 * accepted, as an application would.
 */
export interface Load {
  /** The order numbers of the accepted orders. */
  readonly accepted: readonly string[]
  /** Number of successful (`good`) and failed (`bad`) reads of the company. */
  readonly reads: { good: number; bad: number }
  /** Starts no further requests and resolves when every order in flight is accepted. */
  stop(): Promise<void>
}

export function startLoad(at: Installation, realm: string, firstNumber: number): Load {
  const stopping = new AbortController()
  const accepted: string[] = []
  const reads = { good: 0, bad: 0 }
  const inFlight = new Set<Promise<void>>()

  async function order(number: string): Promise<void> {
    // A request may be repeated, because the demo API queues an order number only once.
    while (!(await succeeds(`${at.demoApi}/queue?number=${number}`))) await delay(500)
    accepted.push(number)
  }
  async function read(): Promise<void> {
    const query = encodeURIComponent('select * from CompanyInfo')
    const isGood = await succeeds(
      `${at.accountingGateway}/v3/company/${realm}/query?query=${query}`,
      { Authorization: `Bearer ${at.serviceKey}` },
    )
    reads[isGood ? 'good' : 'bad'] += 1
  }
  function begin(work: Promise<void>): void {
    inFlight.add(work)
    void work.finally(() => inFlight.delete(work))
  }
  async function run(): Promise<void> {
    for (let turn = 0; !stopping.signal.aborted; turn++) {
      begin(order(String(firstNumber + turn)))
      if (turn % 5 === 0) begin(read())
      await delay(EVERY_MS)
    }
  }
  const running = run()
  return {
    accepted,
    reads,
    async stop() {
      stopping.abort()
      await running
      await Promise.all(inFlight)
    },
  }
}

/**
 * Sends a GET request and returns whether the response is 2xx. `fetch` reuses its connections, so the requests also
 * show that existing connections work while a replica stops.
 */
async function succeeds(url: string, headers: Record<string, string> = {}): Promise<boolean> {
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(CALL_DEADLINE_MS) })
    await response.body?.cancel()
    return response.ok
  } catch {
    return false
  }
}
