/**
 * Audits events that are too frequent for one audit entry each: issued access tokens, changes of labels, connect links,
 * and failed code exchanges of browsers. All events of a second with the same caller, credential, version and outcome share one audit entry, which
 * contains their number.
 *
 * A response does not wait until its audit entry is stored, so a killed process loses the entries of at most one
 * second. All other audit entries are stored together with the write that they describe.
 */
import { randomUUID } from 'node:crypto'
import type { AuditFact } from '@integration-host/shared/contracts/audit'
import type { CustodyDeps } from './custody-deps.ts'
import { type AuditContext, auditFactOf } from './outbox.ts'

export type AuditCounter = ReturnType<typeof createAuditCounter>

const FLUSH_INTERVAL_MS = 1_000
/**
 * The maximum number of audit entries that are buffered while the store is unavailable. Above this number, events are
 * counted only by action, without credential and caller.
 */
const MAX_BUFFERED = 10_000

export function createAuditCounter({
  store,
  now,
  notifyOutbox,
}: Pick<CustodyDeps, 'store' | 'now' | 'notifyOutbox'>) {
  let buffered = new Map<string, { readonly fact: AuditFact; count: number }>()
  /**
   * The audit entries that are being written. A retried write uses the same id, so that the store adds the entries only
   * once.
   */
  let batch: { readonly id: string; readonly facts: readonly AuditFact[] } | null = null
  let writing: Promise<void> = Promise.resolve()
  let timer: NodeJS.Timeout | undefined

  /** Counts one event. Its audit entry has the time of the first event in the same second. */
  function count(
    { name, version }: { readonly name: string; readonly version: number },
    context: Omit<AuditContext, 'at' | 'traceId'>,
  ): void {
    const { who, what, outcome = 'ok' } = context
    const key = `${who} ${what} ${outcome} ${name} ${version}`
    const known = buffered.get(key)
    if (known !== undefined) known.count += 1
    else if (buffered.size >= MAX_BUFFERED && name !== '')
      return count({ name: '', version: 0 }, { who: 'many', what, outcome })
    else
      buffered.set(key, {
        fact: auditFactOf({ name, version }, { ...context, at: now() }),
        count: 1,
      })
    timer ??= setTimeout(() => void flush(), FLUSH_INTERVAL_MS)
  }

  function flush(): Promise<void> {
    clearTimeout(timer)
    timer = undefined
    writing = writing.then(write)
    return writing
  }

  async function write(): Promise<void> {
    try {
      while (batch !== null || buffered.size > 0) {
        batch ??= nextBatch()
        await store.record(batch.facts, batch.id)
        batch = null
        notifyOutbox()
      }
    } catch {
      timer ??= setTimeout(() => void flush(), FLUSH_INTERVAL_MS)
    }
  }

  function nextBatch() {
    const facts = [...buffered.values()].map(({ fact, count: Count }) => ({ ...fact, Count }))
    buffered = new Map()
    return { id: randomUUID(), facts }
  }

  return {
    count,
    async [Symbol.asyncDispose](): Promise<void> {
      await flush()
      clearTimeout(timer)
    },
  }
}
