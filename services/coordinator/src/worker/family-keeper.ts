/**
 * Does what the end of a child or of a parent asks for (run/families.ts): publishes children that have got a turn, cancels
 * children, and moves parents on whose children have all ended.
 *
 * It does so directly after each such transition of this replica. A poll finds the families of lost coordinators.
 */
import { batched } from '@integration-host/shared/batching/batched'
import { createPendingWork } from '@integration-host/shared/process/pending-work'
import { familyPlaces } from '../step/children-place.ts'
import { hasFamilies, type ProcessDefinition } from '../step/definition.ts'
import { type Family, type WhichFamilies, workOn } from '../run/families.ts'
import { type Run, type RunKey, runKey } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from './polling.ts'
import type { StepsInFlight } from './steps-in-flight.ts'
import type { TransitionPublisher } from './transition-publisher.ts'

export interface FamilyKeeper extends AsyncDisposable {
  /** Must be called after each transition of a run that this replica has committed. */
  readonly onTransition: (run: RunKey & Pick<Run, 'Status'>) => void
  /** Looks at the families of a run that has begun to wait for its children. */
  settle(run: RunKey): Promise<void>
}

export interface FamilyKeeperDeps extends Periodic {
  readonly source: Pick<
    TransactionSource,
    | 'lookAtFamilies'
    | 'takeTurns'
    | 'cancelChildren'
    | 'joinFamilies'
    | 'children'
    | 'purge'
    | 'closeFamily'
  >
  readonly publisher: Pick<TransitionPublisher, 'publishStep' | 'publishSteps'>
  readonly stepsInFlight: Pick<StepsInFlight, 'abortCancelled'>
  readonly processes: ReadonlyMap<string, ProcessDefinition>
}

const BATCH = 500
/** The maximum number of batches that one poll works on. The next poll continues. */
const MAX_BATCHES = 10

export function startFamilyKeeper(deps: FamilyKeeperDeps): FamilyKeeper {
  const { source, publisher, stepsInFlight, processes, log } = deps

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
    if (areAllOver) await source.closeFamily(family)
  }

  const pass = batched<RunKey, void>(
    async (ended) => {
      await work({ ended })
      return []
    },
    { retries: false },
  )

  async function poll(): Promise<boolean> {
    for (let batch = 0; batch < MAX_BATCHES; batch += 1)
      if ((await work({ limit: BATCH })) < BATCH) return true
    return false
  }

  const inFlight = createPendingWork()
  const polling = startPolling({ ...deps, task: 'families', poll })
  const passed = (run: RunKey): Promise<void> =>
    inFlight.add(
      pass(runKey(run)).catch((error: unknown) => {
        log.debug({ err: error }, 'work on a family failed; the next poll repeats it')
      }),
    )
  const hasChildren = (process: string): boolean => {
    const definition = processes.get(process)
    return definition !== undefined && hasFamilies(definition)
  }
  return {
    onTransition(run) {
      // The id of a child contains a slash.
      if (!isOver(run.Status)) return
      if (run.TransactionID.includes('/') || hasChildren(run.Process)) void passed(run)
    },
    settle: passed,
    async [Symbol.asyncDispose]() {
      await polling[Symbol.asyncDispose]()
      await inFlight.ended()
    },
  }
}
