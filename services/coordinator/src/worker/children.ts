/** Starts the children of a run that has entered a place with a list, reads them, and undoes them (run/families.ts). */
import { acceptedKey } from '../run/concurrency.ts'
import { childId, childIdProblem, childPrefix } from '../run/child-id.ts'
import {
  CHILD_CONFLICT,
  CHILDREN_FAILED,
  CHILDREN_PER_PAGE,
  CHILDREN_TOO_DEEP,
  type ChildrenPage,
  type Families,
  MAX_FAMILY_DEPTH,
  type NewChild,
  type StoredPage,
  type UndonePage,
} from '../run/families.ts'
import type { ChildItem, ChildList, StepOutcome } from '../run/progress.ts'
import { type RunKey, runKey } from '../run/run.ts'
import type { Claim } from '../run/transaction-source.ts'
import { outlineOf, type ProcessDefinition } from '../step/definition.ts'
import type { Child } from '../step/step.ts'

export interface ChildrenStart {
  readonly page: ChildrenPage
  /** Returns the outcome of the place for what the source has found. */
  readonly outcomeOf: (stored: StoredPage) => StepOutcome
}

/** Returns the page of the list that the run stores in this round, or the outcome with which the run fails. */
export function childrenStart(
  { run, round }: Pick<Claim, 'run' | 'round'>,
  { items, tolerated, concurrent }: ChildList,
  definition: ProcessDefinition,
): ChildrenStart | StepOutcome {
  const at = startOf(round)
  const number = round?.number ?? 0
  const Prefix = childPrefix(run, run.StepName)
  const next = at + CHILDREN_PER_PAGE
  const children: NewChild[] = []
  // The first round checks the whole list, so that no child starts if an item is not valid.
  const checked = number === 0 ? items : items.slice(at, next)
  for (const [n, item] of checked.entries()) {
    const child = checkedChild(item, childId(Prefix, item.id), definition)
    if ('kind' in child) return child
    const Item = number === 0 ? n : at + n
    if (Item >= at && Item < next) children.push({ ...child, Item })
  }
  return {
    page: {
      Place: run.StepName,
      Prefix,
      Total: items.length,
      Tolerated: tolerated,
      Concurrent: concurrent,
      process: outlineOf(definition),
      children,
    },
    outcomeOf({ conflicts, isTooDeep, hasMore }) {
      if (isTooDeep)
        return failed(
          CHILDREN_TOO_DEEP,
          `a run may have at most ${MAX_FAMILY_DEPTH} ancestors, so this run cannot have children`,
        )
      if (conflicts.length > 0)
        return failed(
          CHILD_CONFLICT,
          `${definition.name} has runs with the ids of children that are not children of this place: ${shown(conflicts)}`,
        )
      if (next >= items.length && !hasMore) return { kind: 'joining' }
      const state = { at: Math.min(next, items.length) }
      return {
        kind: 'repeated',
        response: null,
        round: { number: number + 1, state },
        delayMs: 0,
      }
    },
  }
}

/** Returns the outcome of the place of a run that is being undone. */
export function outcomeOfUndo({ family, hasMore, undoFailed }: UndonePage): StepOutcome {
  if (family === null) return { kind: 'left' }
  if (hasMore) return { kind: 'later', delayMs: 0 }
  if (family.Pending > 0) return { kind: 'joining' }
  if (undoFailed > 0)
    return failed(
      CHILDREN_FAILED,
      `${undoFailed} children could not be undone: a resume goes on with their undo`,
    )
  return { kind: 'undone', response: null }
}

const MAX_SHOWN = 3
const shown = (ids: readonly string[]): string =>
  `${ids.slice(0, MAX_SHOWN).join(', ')}${ids.length > MAX_SHOWN ? ', …' : ''}`

const failed = (errorClass: string, error: string): StepOutcome => ({
  kind: 'failed',
  errorClass,
  error,
  response: null,
})

function checkedChild(
  { id, data, realm }: ChildItem,
  TransactionID: string,
  definition: ProcessDefinition,
): Omit<NewChild, 'Item'> | StepOutcome {
  const problem = childIdProblem(TransactionID)
  if (problem !== null) return failed('step_threw', `items: ${problem}`)
  const accepted = acceptedKey(definition, data, realm)
  if ('problems' in accepted)
    return failed('input_invalid', `the item ${id} is not valid: ${accepted.problems.join('; ')}`)
  return { TransactionID, InitialData: data, Realm: realm, ConcurrencyKey: accepted.key }
}

/** Returns the position of the list at which the round begins. */
function startOf(round: Claim['round']): number {
  const state: unknown = round?.state
  const at = typeof state === 'object' && state !== null && 'at' in state ? state.at : 0
  return typeof at === 'number' && Number.isSafeInteger(at) && at >= 0 ? at : 0
}

/** The number of children that are read at once. */
const PAGE = 200

/** Reads the children that a place of a run has started, in the order of the list. */
export async function* readChildren(
  source: Pick<Families, 'children'>,
  run: RunKey,
  place: string,
): AsyncGenerator<Child, void, undefined> {
  const key = { ...runKey(run), Place: place }
  for (let after = -1; ;) {
    const rows = await source.children(key, { after, limit: PAGE, withData: true })
    for (const row of rows)
      yield {
        id: row.ItemID,
        transactionId: row.TransactionID,
        status: row.Status,
        data: row.Data,
        errorClass: row.ErrorClass,
        error: row.LastError,
      }
    const last = rows.at(-1)
    if (last === undefined || rows.length < PAGE) return
    after = last.Item
  }
}
