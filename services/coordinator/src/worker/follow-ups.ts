/**
 * What the transition of a run asks for in other runs. A slot that it releases (run/slots.ts) is assigned to a run that
 * waits for one. The end of a child or of a parent (run/families.ts) gives children a turn, cancels children, and moves
 * parents on whose children have all ended. The step messages of these other runs are published.
 *
 * This is done directly after each such transition of this replica. Polls find what happened without one: the runs of
 * lost coordinators, and slots that a changed limit adds.
 */
import { batched } from '@integration-host/shared/batching'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { familyPlaces } from '../step/children-place.ts'
import { hasFamilies, type ProcessDefinition } from '../step/definition.ts'
import { type Family, type WhichFamilies, workOn } from '../run/families.ts'
import { type RunKey, runKey } from '../run/run.ts'
import { isWaitingForSlot, type ProcessLimit } from '../run/slots.ts'
import { isOver } from '../run/status.ts'
import type { RunState, TransactionSource } from '../run/transaction-source.ts'
import { recoverLeases } from './lease-recovery.ts'
import { inBatches, type Periodic, startPolling } from './polling.ts'
import type { StepsInFlight } from './steps-in-flight.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

export interface FollowUpDeps extends Periodic {
  readonly source: TransactionSource
  readonly publisher: Pick<TransitionPublisher, 'publishStep' | 'publishSteps'>
  readonly stepsInFlight: Pick<StepsInFlight, 'abortCancelled'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
  /** Called with the number of runs whose leases were recovered. */
  readonly onRecovered: (count: number) => void
}

export function startFollowUps(deps: FollowUpDeps) {
  const { processes, log } = deps
  const inFlight = createPendingWork()

  /** Starts the polls, and returns a function that works on a run. Runs that come at the same time are one batch. */
  function follow(task: string, { work, poll }: FollowUp) {
    const pass = batched<RunKey, void>(
      async (runs) => {
        await work(runs)
        return []
      },
      { retries: false },
    )
    const polling = startPolling({ ...deps, task, poll })
    const workSoon = (run: RunKey): Promise<void> =>
      inFlight.add(
        pass(runKey(run)).catch((error: unknown) => {
          log.debug(
            { err: error, task },
            'work after a transition failed; the next poll repeats it',
          )
        }),
      )
    return { workSoon, polling }
  }
  const slots = follow('slots', assignSlots(deps))
  const families = follow('families', tendFamilies(deps))

  const isLimited = (process: ProcessDefinition | undefined): boolean =>
    (process?.concurrency ?? null) !== null
  return {
    /** Must be called after each transition of a run that this replica has committed. */
    onTransition: (run: Pick<RunState, keyof RunKey | 'Status' | 'WaitingFor'>): void => {
      const process = processes.get(run.Process)
      if (run.Status !== 'Running' && isLimited(process) && !isWaitingForSlot(run))
        void slots.workSoon(run)
      if (!isOver(run.Status)) return
      const isChild = run.TransactionID.includes('/') // only the id of a child contains a slash
      if (isChild || (process !== undefined && hasFamilies(process))) void families.workSoon(run)
    },
    /** Looks at the families of a run that has begun to wait for its children. */
    settleFamilies: families.workSoon,
    async [Symbol.asyncDispose](): Promise<void> {
      await families.polling[Symbol.asyncDispose]()
      await slots.polling[Symbol.asyncDispose]()
      await inFlight.ended()
    },
  }
}

interface FollowUp {
  /** Does what the transitions of these runs ask for. */
  readonly work: (runs: readonly RunKey[]) => Promise<unknown>
  readonly poll: () => Promise<boolean>
}

const BATCH = 500
/** The maximum number of statements with which one poll assigns slots. The next poll assigns the rest. */
const MAX_GRANTS = 20

function assignSlots(deps: FollowUpDeps): FollowUp {
  const { source, publisher, processes } = deps
  const limits = (): ProcessLimit[] =>
    [...processes.values()].map(({ name, concurrency }) => ({
      process: name,
      limit: concurrency?.limit ?? null,
      ...(concurrency?.total !== undefined && { total: concurrency.total }),
    }))

  /** Assigns slots until no more can be assigned. Resolves with false if more may be assigned. */
  async function grant(released: readonly RunKey[] | null): Promise<boolean> {
    for (let call = 0; call < MAX_GRANTS; call += 1) {
      const { runs, hasMore } = await source.grantSlots(limits(), released)
      await Promise.all(runs.map((run) => publisher.publishStep(run)))
      if (!hasMore) return true
    }
    return false
  }

  return {
    work: grant,
    async poll() {
      // A lost coordinator occupies the slots of its runs until their leases are recovered.
      if ([...processes.values()].some(({ concurrency }) => concurrency !== null))
        await recoverLeases(deps, BATCH)
      return grant(null)
    },
  }
}

function tendFamilies({ source, publisher, stepsInFlight, processes }: FollowUpDeps): FollowUp {
  /** Works on families, and returns how many it has found. */
  async function work(which: WhichFamilies): Promise<number> {
    const looks = await source.lookAtFamilies(which)
    if (looks.length === 0) return 0
    const places = [...processes.values()].flatMap(familyPlaces)
    const works = looks.map((look) => workOn(look, places))
    const turns = looks.flatMap(({ family }, n) =>
      works[n]?.takesTurns === true ? [{ ...family, ReplayID: family.OfReplayID }] : [],
    )
    if (turns.length > 0) publisher.publishSteps(await source.takeTurns(turns))
    const cancels = works.flatMap(({ cancels: one }) => one ?? [])
    for (let isMore = cancels.length > 0; isMore;) {
      const cancelled = await source.cancelChildren(cancels, BATCH)
      for (const run of cancelled) stepsInFlight.abortCancelled(run)
      publisher.publishSteps(cancelled)
      isMore = cancelled.length === BATCH
    }
    const joins = works.flatMap(({ join }) => join ?? [])
    if (joins.length > 0)
      await Promise.all((await source.joinFamilies(joins)).map((run) => publisher.publishStep(run)))
    for (const { purge } of works) if (purge !== null) await purgeChildren(purge)
    return looks.length
  }

  /** Purges the children of a purged parent, whatever the retention of their own process is. */
  async function purgeChildren(family: Family): Promise<void> {
    const policy = { process: family.ChildProcess, completedMs: 0, failedMs: 0 }
    let areAllOver = true
    for (let after = -1; ;) {
      const children = await source.children(family, { after, limit: BATCH })
      areAllOver &&= children.every(({ Status }) => isOver(Status))
      await source.purge(policy, children.map(runKey))
      const last = children.at(-1)
      if (last === undefined || children.length < BATCH) break
      after = last.Item
    }
    const children = { ...family, ReplayID: family.OfReplayID }
    const done = { ...children, which: 'not_started', isCascade: true } as const
    if (areAllOver) await source.cancelChildren([done], BATCH)
  }

  return {
    work: (ended) => work({ ended }),
    poll: () => inBatches((limit) => work({ limit })),
  }
}
