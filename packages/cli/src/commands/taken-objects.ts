/** The objects that an operation takes back, for the commands of bulk operations. */
import {
  type OperationView,
  type TakenObject,
  TakenObjectPage,
} from '@integration-host/shared/contracts/operations'
import { pagesOf } from '../paging.ts'
import type { ServiceApi } from '../service-api.ts'
import { createTable } from '../terminal.ts'

/** The maximum number of objects that are read. */
const MAX_OBJECTS = 100_000
const MOST_PER_PAGE = 200
/** The maximum number of objects that are printed one by one. `--json` prints all. */
const MAX_PRINTED = 20

/** Reads the objects of an operation that takes back; `null` for other operations. */
export async function objectsOf(
  service: ServiceApi,
  { ID, Action }: OperationView,
): Promise<readonly TakenObject[] | null> {
  if (Action !== 'take-back') return null
  const objects: TakenObject[] = []
  const list = {
    path: `/operations/${encodeURIComponent(ID)}/objects`,
    schema: TakenObjectPage,
    limit: MAX_OBJECTS,
    mostPerPage: MOST_PER_PAGE,
  }
  for await (const page of pagesOf(service, list)) objects.push(...page)
  return objects
}

/** Returns the totals by entity and outcome, and the first objects that are left. */
export function objectLinesOf(
  { DryRun }: OperationView,
  objects: readonly TakenObject[],
): string[] {
  if (objects.length === 0) return []
  const outcomeOf = ({ Outcome, Reason }: TakenObject): string =>
    [Outcome, ...(Reason === null ? [] : [Reason])].join(': ')
  const totals = new Map<string, number>()
  for (const object of objects)
    for (const entity of [object.Entity, 'in total']) {
      const key = `${entity}\t${outcomeOf(object)}`
      totals.set(key, (totals.get(key) ?? 0) + 1)
    }
  const order = ([key]: [string, number]): string => `${key.startsWith('in total') ? 1 : 0}${key}`
  const rows = [...totals]
    .toSorted((a, b) => order(a).localeCompare(order(b)))
    .map(([key, count]) => [...key.split('\t'), String(count)])
  const others = objects.filter(({ Outcome }) => Outcome === 'left' || Outcome === 'failed')
  const shown = others.slice(0, MAX_PRINTED)
  return [
    '',
    ...createTable(['ENTITY', DryRun ? 'WOULD BE' : 'IS', 'COUNT'])(rows),
    ...(shown.length === 0
      ? []
      : [
          '',
          ...createTable(['LEFT', 'REALM', 'WHY', 'CHANGED FIELDS'])(
            shown.map((object) => [
              `${object.Entity} ${object.EntityID}`,
              object.Realm,
              object.Reason ?? '',
              object.Fields?.join(', ') ?? '',
            ]),
          ),
        ]),
    ...(others.length > shown.length
      ? [`… and ${others.length - shown.length} more (--json prints all)`]
      : []),
  ]
}
