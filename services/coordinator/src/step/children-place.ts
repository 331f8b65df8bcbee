/** The places at which a run has children: `.forEach(name, process, options)` of a process. */
import { Realm } from '@integration-host/shared/contracts/realm'
import { MAX_ITEM_ID } from '../run/child-id.ts'
import { type FamilyPlace, resultOf } from '../run/families.ts'
import {
  isDeeperThan,
  isPreservedAsJson,
  type Json,
  type JsonInput,
  MAX_DEPTH,
  normalizedJson,
} from '../run/json-normalization.ts'
import type { ChildItem, StepOutcome } from '../run/progress.ts'
import { MAX_TRANSACTION_BYTES, NOT_PRESERVED } from '../run/queueable.ts'
import {
  isDefinition,
  type ProcessDefinition,
  requireMembers,
  requirePlaceName,
} from './definition.ts'
import { type EnteredStep, enteredMembers, placeFailed } from './entered.ts'
import type { AnyStep, ProcessSettings } from './step.ts'
import { thrownText } from './thrown-text.ts'

/** The options of a place with children that do not depend on the types of its process. */
export interface ForEachOptions {
  /** How many children of one parent run at the same time. Default: all of them. */
  readonly concurrent?: number
  /**
   * How many children may end without being completed: a number, or a share of the list such as `'5%'`. If more do, the
   * children that have not started are cancelled, and the run fails as `children_failed`. Default: 0.
   */
  readonly tolerate?: number | `${number}%`
}

/** An item of the list of a place: the initial data of one child. */
export interface ForEachItem<Data = JsonInput> {
  /** The id of the item: 1 to 64 characters, unique in the list. The id of the child ends with it. */
  readonly id: string | number
  readonly data: Data
  /** The company of the child. Default: the company of its parent. */
  readonly realm?: string
}

/** A place with children, as a definition stores it. */
export interface ForEachSettings {
  /** The definition of the children, as the module of the process has imported it. */
  readonly process: ProcessDefinition
  readonly items: (entered: never) => readonly ForEachItem[]
  readonly concurrent: number | null
  readonly tolerate: { readonly count: number } | { readonly percent: number }
}

const MEMBERS = new Set<string>(['items', 'concurrent', 'tolerate', 'when'])
/** The maximum length of a list. */
const MAX_ITEMS = 1_000_000
const CONTROL_CHARACTERS = /\p{Cc}/u
const PERCENT = /^(\d{1,3}(?:\.\d{1,6})?)%$/

/** Returns the place as it is stored in the definition. @throws {TypeError} if the name or an option is not valid */
export function forEachStep(
  process: string,
  name: string,
  children: unknown,
  options: ForEachOptions &
    Pick<AnyStep, 'when'> & { readonly items: ForEachSettings['items'] } = {} as never,
): AnyStep {
  requirePlaceName(process, name, 'a list')
  const what = `forEach ${name} of ${process}`
  if (!isDefinition(children) || !('stepNames' in children))
    throw new TypeError(`${what} needs the process of its children: defineProcess(…) with a step`)
  if (children.runBuiltIn !== undefined)
    throw new TypeError(`${what}: ${children.name} is built in and has no children`)
  requireMembers(options, MEMBERS, what)
  const { items, concurrent = null, tolerate = 0, when } = options
  if (typeof items !== 'function') throw new TypeError(`items of ${what} must be a function`)
  if (concurrent !== null && !(Number.isSafeInteger(concurrent) && concurrent >= 1))
    throw new TypeError(`concurrent of ${what} must be a whole number, 1 or more`)
  const forEach: ForEachSettings = {
    process: children,
    items,
    concurrent,
    tolerate: toleratedOf(tolerate, what),
  }
  // The worker starts the children instead of calling the function.
  return Object.assign(() => {}, { forEach, ...(when !== undefined && { when }) })
}

function toleratedOf(tolerate: unknown, what: string): ForEachSettings['tolerate'] {
  if (typeof tolerate === 'number' && Number.isSafeInteger(tolerate) && tolerate >= 0)
    return { count: tolerate }
  const percent = Number((typeof tolerate === 'string' ? PERCENT.exec(tolerate) : null)?.[1])
  if (!(percent >= 0 && percent <= 100))
    throw new TypeError(
      `tolerate of ${what} must be a whole number, 0 or more, or a share from '0%' to '100%'`,
    )
  return { percent }
}

/** Returns the outcome of a run that enters the place: it has a list of children, or it fails. */
export function enterForEach(
  { process, items: itemsOf, concurrent, tolerate }: ForEachSettings,
  entered: EnteredStep,
  settings: ProcessSettings,
): StepOutcome {
  let list: readonly ChildItem[] | string
  try {
    list = checkedItems(
      (itemsOf as (given: unknown) => unknown)(enteredMembers(entered, settings)),
      entered.claim.run.Realm,
    )
  } catch (error) {
    return placeFailed(entered, `items: ${thrownText(error)}`)
  }
  if (typeof list === 'string') return placeFailed(entered, `items ${list}`)
  if (list.length === 0)
    return {
      kind: 'completed',
      response: null,
      data: resultOf({ Total: 0, Stored: 0, Pending: 0, Failed: 0 }, []),
      endsRun: false,
    }
  const redaction = entered.process.bound?.redaction ?? null
  const items =
    redaction === null ? list : list.map((item) => ({ ...item, data: redaction.json(item.data) }))
  const tolerated =
    'count' in tolerate ? tolerate.count : Math.floor((items.length * tolerate.percent) / 100)
  return { kind: 'children', list: { process: process.name, items, concurrent, tolerated } }
}

/** Returns the items as they are stored, or what is wrong with them, to follow the word `items`. */
function checkedItems(list: unknown, parentRealm: string | null): ChildItem[] | string {
  if (list instanceof Promise) list.catch(() => {})
  if (!Array.isArray(list)) return 'must return an array, and not a promise'
  if (list.length > MAX_ITEMS) return `returned ${list.length} items; ${MAX_ITEMS} are possible`
  const ids = new Set<string>()
  const items: ChildItem[] = []
  for (const [n, item] of list.entries() as Iterable<[number, Partial<ForEachItem> | null]>) {
    const given = item?.id
    const id = Number.isFinite(given) ? String(given) : given
    if (typeof id !== 'string' || !isItemId(id))
      return `[${n}].id must have 1 to ${MAX_ITEM_ID} characters, none of them a control character`
    if (ids.has(id)) return `[${n}].id repeats the id of another item: ${id}`
    ids.add(id)
    const data = item?.data === undefined ? null : item.data
    if (!isPreservedAsJson(data)) return `[${n}].data ${NOT_PRESERVED}`
    const stored: Json = normalizedJson(data)
    if (isDeeperThan(stored, MAX_DEPTH)) return `[${n}].data may have ${MAX_DEPTH} levels`
    if (Buffer.byteLength(JSON.stringify(stored)) > MAX_TRANSACTION_BYTES)
      return `[${n}].data has more than ${MAX_TRANSACTION_BYTES} bytes`
    const realm = item?.realm ?? parentRealm
    if (realm !== null && !Realm.safeParse(realm).success) return `[${n}].realm is not a realm`
    items.push({ id, data: stored, realm })
  }
  return items
}

const isItemId = (id: string): boolean =>
  id.length >= 1 && id.length <= MAX_ITEM_ID && !CONTROL_CHARACTERS.test(id) && id.isWellFormed()

/** Returns the places of a process at which its runs have children. */
export const familyPlaces = ({
  name,
  stepNames,
  steps,
  undoesFailure,
}: ProcessDefinition): FamilyPlace[] =>
  stepNames.flatMap((place, index) =>
    steps.get(place)?.forEach === undefined
      ? []
      : [{ process: name, place, next: stepNames[index + 1] ?? null, undoesFailure }],
  )
