/**
 * Assigns free slots (`run/slots.ts`) to the runs that wait for them, and publishes the step messages of these
 * runs.
 *
 * A slot is assigned as soon as a transition of this replica has released it. A poll finds slots that become free
 * without such a transition: slots of a lost coordinator, and slots that a changed limit adds.
 */
import { batched } from '@integration-host/shared/batching/batched'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import type { ProcessDefinition } from '../step/definition.ts'
import { type RunKey, runKey } from '../run/run.ts'
import { isWaitingForSlot, type ProcessLimit } from '../run/slots.ts'
import type { RunState, TransactionSource } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from './polling.ts'
import { delayMsOf, type TransitionPublisher } from './transition-publisher.ts'

export interface SlotKeeper extends AsyncDisposable {
  /** Must be called after each transition of a run that this replica has committed. */
  readonly onTransition: (run: Pick<RunState, keyof RunKey | 'Status' | 'WaitingFor'>) => void
}

export interface SlotKeeperDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'grantSlots' | 'recoverExpiredLeases'>
  readonly publisher: Pick<TransitionPublisher, 'publishStep'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  /** Called with the number of runs whose leases were recovered. */
  readonly onRecovered: (count: number) => void
}

/** The maximum number of statements with which one poll assigns slots. The next poll assigns the rest. */
const MAX_CALLS = 20
const RECOVERED = 500

export function startSlotKeeper(deps: SlotKeeperDeps): SlotKeeper {
  const { source, publisher, processes, log } = deps
  const isLimited = (process: string): boolean =>
    (processes.get(process)?.concurrency ?? null) !== null
  const limits = (): ProcessLimit[] =>
    [...processes.values()].map(({ name, concurrency }) => ({
      process: name,
      limit: concurrency?.limit ?? null,
      ...(concurrency?.total !== undefined && { total: concurrency.total }),
    }))

  /** Assigns slots until no more can be assigned. Resolves with false if more may be assigned. */
  async function grant(released: readonly RunKey[] | null): Promise<boolean> {
    for (let call = 0; call < MAX_CALLS; call += 1) {
      const { runs, hasMore } = await source.grantSlots(limits(), released)
      await Promise.all(runs.map((run) => publisher.publishStep(run)))
      if (!hasMore) return true
    }
    return false
  }

  async function poll(): Promise<boolean> {
    // A lost coordinator occupies the slots of its runs until their leases are recovered.
    if ([...processes.keys()].some(isLimited)) {
      const recovered = await source.recoverExpiredLeases(RECOVERED)
      if (recovered.length > 0) {
        log.warn({ count: recovered.length }, 'recovered expired leases of a lost coordinator')
        deps.onRecovered(recovered.length)
        await Promise.all(recovered.map((run) => publisher.publishStep(run, delayMsOf(run))))
      }
    }
    return grant(null)
  }

  const pass = batched<RunKey, void>(
    async (released) => {
      await grant(released)
      return []
    },
    { retries: false },
  )
  const inFlight = createPendingWork()
  const polling = startPolling({ ...deps, task: 'slots', poll })
  return {
    onTransition(run) {
      if (run.Status === 'Running' || !isLimited(run.Process) || isWaitingForSlot(run)) return
      const passing = pass(runKey(run)).catch((error: unknown) => {
        log.debug({ err: error }, 'assigning slots to waiting runs failed; the next poll retries')
      })
      void inFlight.add(passing)
    },
    async [Symbol.asyncDispose]() {
      await polling[Symbol.asyncDispose]()
      await inFlight.ended()
    },
  }
}
