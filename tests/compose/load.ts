import { setTimeout as delay } from 'node:timers/promises'
import type { Installation } from '../../host/src/story.ts'

const EVERY_MS = 100
const CALL_DEADLINE_MS = 15_000

/** Orders that keep coming, and reads of a company beside them, as from an application that tries again until it is told yes. */
export interface Load {
  /** Numbers of the orders that were taken. */
  readonly taken: readonly string[]
  /** Reads of the company that succeeded; those that failed. */
  readonly reads: { good: number; bad: number }
  /** Resolves when every order that was begun has been taken. */
  stop(): Promise<void>
}

export function startLoad(at: Installation, realm: string, firstNumber: number): Load {
  const leaving = new AbortController()
  const taken: string[] = []
  const reads = { good: 0, bad: 0 }
  const inHand = new Set<Promise<void>>()

  async function order(number: string): Promise<void> {
    // Asking again for the same number queues it once.
    while (!(await succeeds(`${at.demoApi}/queue?number=${number}`))) await delay(500)
    taken.push(number)
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
    inHand.add(work)
    void work.finally(() => inHand.delete(work))
  }
  async function run(): Promise<void> {
    for (let turn = 0; !leaving.signal.aborted; turn++) {
      begin(order(String(firstNumber + turn)))
      if (turn % 5 === 0) begin(read())
      await delay(EVERY_MS)
    }
  }
  const running = run()
  return {
    taken,
    reads,
    async stop() {
      leaving.abort()
      await running
      await Promise.all(inHand)
    },
  }
}

/** Not for a connection of its own each: replicas that go must be noticed on kept ones as well. */
async function succeeds(url: string, headers: Record<string, string> = {}): Promise<boolean> {
  try {
    const answer = await fetch(url, { headers, signal: AbortSignal.timeout(CALL_DEADLINE_MS) })
    await answer.body?.cancel()
    return answer.ok
  } catch {
    return false
  }
}
