import { isDeepStrictEqual } from 'node:util'
import type { Json } from '../../run/json-normalization.ts'
import {
  isKeyColumn,
  itemJsonColumns,
  type PayloadColumn,
  type PayloadStore,
  sealedWith,
  type StoredPayload,
} from '../../run/payload.ts'
import { keyText, runKey } from '../../run/run.ts'
import type { StoredRun } from '../../run/transitions.ts'
import type { MemoryStore } from './store.ts'

/** The payloads of the memory source. */
export function createMemoryPayloads({
  table,
  commit,
}: Pick<MemoryStore, 'table' | 'commit'>): PayloadStore {
  return {
    async outdatedPayloads(keyId, { after, limit, isCount = false }) {
      const runs = table
        .all()
        .map((stored) => ({ stored, key: keyText(stored.header) }))
        .filter(({ key }) => after === null || key > keyText(after))
        .toSorted((a, b) => (a.key < b.key ? -1 : 1))
        .slice(0, limit)
      const last = runs.at(-1)?.stored
      const payloads = runs
        .flatMap(({ stored }) => payloadsOf(stored))
        .filter((payload) => sealedWith(payload) !== keyId)
      return {
        count: payloads.length,
        payloads: isCount ? [] : payloads,
        next: last === undefined || runs.length < limit ? null : runKey(last.header),
      }
    },
    async replacePayloads(payloads) {
      let replaced = 0
      const changed = new Map<string, StoredRun>()
      for (const { by, ...payload } of payloads) {
        const key = keyText(payload)
        const before = changed.get(key) ?? table.get(payload)
        const isSame = (other: StoredPayload): boolean => isDeepStrictEqual(other, payload)
        if (before === undefined || !payloadsOf(before).some(isSame)) continue
        changed.set(key, withPayload(before, payload, by))
        replaced += 1
      }
      await commit(...[...changed.values()].map((run) => ({ run })))
      return replaced
    },
  }
}

function payloadsOf({ header, items, slot }: StoredRun): StoredPayload[] {
  const key = runKey(header)
  const ofRun = (column: PayloadColumn, stored: Json) => ({ ...key, column, step: null, stored })
  const all = [
    ofRun('InitialData', header.InitialData),
    ofRun('ConcurrencyKey', header.ConcurrencyKey),
    ofRun('DebounceKey', header.DebounceKey),
    ofRun('SlotKey', slot?.key || null), // the key of a limit for the whole process is empty
    ...items.flatMap((item) =>
      (['ResponseBody', ...itemJsonColumns] as const).map((column) => ({
        ...key,
        column,
        step: item.StepName,
        stored: (item[column] ?? null) as Json,
      })),
    ),
  ]
  return all.filter(({ stored }) => stored !== null)
}

function withPayload(run: StoredRun, { column, step }: StoredPayload, by: Json): StoredRun {
  if (column === 'SlotKey')
    return run.slot === undefined ? run : { ...run, slot: { ...run.slot, key: by as string } }
  if (column === 'InitialData' || isKeyColumn(column))
    return { ...run, header: { ...run.header, [column]: by } }
  const items = run.items.map((item) => (item.StepName === step ? { ...item, [column]: by } : item))
  return { ...run, items }
}
