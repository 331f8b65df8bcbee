/**
 * Fair turns between companies. A message to the queue of a step stands behind all messages that are there already. So a
 * company that queues thousands of runs would let the runs of all other companies wait. Therefore the messages of a busy
 * company go to a lane, a queue that the workers consume beside the queues of the steps (`LANES`).
 *
 * N1  A company is busy while it has more than `PREFETCH` messages in a process that this replica has published and that
 *     no worker has received yet. So a company that is not busy stands behind at most `PREFETCH` messages of each other
 *     company and replica.
 * N2  A lane has its own `PREFETCH`, so a company that is alone is not slower in it.
 * N3  The count is only in memory. If the transitions of other replicas are lost, or if a replica dies, the count is
 *     wrong: then a message goes to the other queue, where it is processed as well. A count that has not changed for
 *     15 s is dropped, and a message counts for 10 minutes at most.
 *
 * Runs without a company never go to a busy lane.
 *
 * N4  The messages of runs with high priority go to a lane of their own, whatever their company. Of it, a replica processes
 *     four times as many messages at once as of the queue of a step. So while both have messages, they share the deliveries
 *     4 : 1, and neither stops the other.
 */
import { busyLanesOf, HIGH_LANE, hasHighLane } from '@integration-host/shared/contracts/topology'
import type { Clock } from '@integration-host/shared/process/clock'
import type { Run, RunKey } from '../run/run.ts'
import type { ProcessDefinition } from '../step/definition.ts'

/** How many times more messages of the lane for high priority are processed at once. */
export const HIGH_SHARE = 4

export interface LanesDeps {
  readonly processes: ReadonlyMap<string, Pick<ProcessDefinition, 'stepNames'>>
  readonly prefetch: number
  readonly clock: Pick<Clock, 'now'>
}

const STANDSTILL_MS = 15_000
const MAX_AGE_MS = 600_000
/** The maximum number of messages that are counted: about 20 MB. The oldest are forgotten first. */
const MAX_COUNTED = 100_000

/** The messages of a company in a process. */
interface Company {
  readonly name: string
  count: number
  changedAt: number
}

export type Lanes = ReturnType<typeof createLanes>

export function createLanes({ processes, prefetch, clock }: LanesDeps) {
  const companies = new Map<string, Company>()
  /** The counted messages by run, oldest first. */
  const messages = new Map<string, { readonly company: Company; readonly at: number }>()

  const nameOf = (process: string, realm: string): string => `${process}/${realm}`
  const keyOf = ({ Process, TransactionID, ReplayID }: RunKey): string =>
    `${Process}/${ReplayID}/${TransactionID}`

  function remove(key: string): void {
    const message = messages.get(key)
    if (message === undefined) return
    messages.delete(key)
    const { company } = message
    company.count -= 1
    company.changedAt = clock.now()
    if (company.count === 0 && companies.get(company.name) === company)
      companies.delete(company.name)
  }

  return {
    /** Returns the lane for the next message of the run; `null` for the queue of its step. */
    of({
      Process,
      Realm = null,
      Priority,
    }: RunKey & Partial<Pick<Run, 'Realm' | 'Priority'>>): string | null {
      const { stepNames: steps = [] } = processes.get(Process) ?? {}
      if (Priority === 'high' && hasHighLane(steps)) return HIGH_LANE
      if (Realm === null) return null
      const name = nameOf(Process, Realm)
      const company = companies.get(name)
      if (company === undefined || company.count < prefetch) return null
      if (company.changedAt <= clock.now() - STANDSTILL_MS) {
        companies.delete(name)
        return null
      }
      const lanes = busyLanesOf(steps)
      return lanes[hash(Realm) % lanes.length] ?? null
    },
    /** Counts a message that is published now. */
    published(run: RunKey & Partial<Pick<Run, 'Realm'>>): void {
      const { Process, Realm = null } = run
      if (Realm === null) return
      const now = clock.now()
      const key = keyOf(run)
      remove(key)
      for (const [oldest, { at }] of messages) {
        if (messages.size < MAX_COUNTED && at > now - MAX_AGE_MS) break
        remove(oldest)
      }
      const name = nameOf(Process, Realm)
      const company = companies.get(name) ?? { name, count: 0, changedAt: now }
      companies.set(name, company)
      company.count += 1
      company.changedAt = now
      messages.set(key, { company, at: now })
    },
    /** Must be called when a message is received, or when another replica reports a transition of the run. */
    left: (run: RunKey): void => remove(keyOf(run)),
  }
}

/** Returns a number that is the same for a company on every replica. */
function hash(text: string): number {
  let sum = 0
  for (let at = 0; at < text.length; at += 1) sum = (sum * 31 + text.charCodeAt(at)) >>> 0
  return sum
}
