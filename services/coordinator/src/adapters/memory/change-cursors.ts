/** The memory source's store of change feed cursors, and of the time of the provider's last delivery. */
import type { ChangeCursor, ChangeCursors } from '../../change-feed/change-cursors.ts'
import type { Subscriptions } from '../../transaction/subscriptions.ts'
import type { MemoryStore } from './store.ts'

/** A cursor as it is stored, without the member that is computed when it is read. */
export type CursorRow = Omit<ChangeCursor, 'lagMs'>

export function createMemoryChangeCursors(
  { cursors, deliveredAt, commit }: Pick<MemoryStore, 'cursors' | 'deliveredAt' | 'commit'>,
  now: () => number,
): ChangeCursors & Subscriptions {
  /**
   * For each process, the routing keys to which it subscribes. They are not stored, because a memory source has only
   * one coordinator, which knows its own definitions.
   */
  const wanted = new Map<string, readonly string[]>()
  const shown = (row: CursorRow): ChangeCursor => ({
    ...row,
    lagMs: Math.max(0, now() - Date.parse(row.position)),
  })
  return {
    async beginCursor(realm) {
      const known = cursors.get(realm)
      if (known !== undefined) return shown(known)
      const position = new Date(now()).toISOString()
      const cursor = { realm, position, sweptAt: null, events: 0, incomplete: null }
      await commit({ cursor })
      return shown(cursor)
    },
    async changeCursor(realm) {
      const known = cursors.get(realm)
      return known === undefined ? null : shown(known)
    },
    async moveCursor(realm, sweep) {
      const known = cursors.get(realm)
      if (known === undefined) return
      const position = sweep.position > known.position ? sweep.position : known.position
      await commit({
        cursor: { ...sweep, realm, position, sweptAt: new Date(now()).toISOString() },
      })
    },
    async removeCursor(removedCursor) {
      if (cursors.has(removedCursor)) await commit({ removedCursor })
    },
    async oldestCursors(limit) {
      return [...cursors.values()]
        .toSorted((a, b) => Date.parse(a.position) - Date.parse(b.position))
        .slice(0, limit)
        .map(shown)
    },
    keepDelivery: () => commit({ deliveredAt: now() }),
    async deliveryAgeMs() {
      const at = deliveredAt()
      return at === null ? null : Math.max(0, now() - at)
    },
    async keepSubscriptions(process, routingKeys) {
      wanted.set(process, routingKeys)
      return routingKeys
    },
    wantedChanges: async () => [...new Set([...wanted.values()].flat())],
  }
}
