/**
 * Tells the audit log of tokens handed out: one fact per caller, credential and version for each second in
 * which there were any, with their number. A token does not wait for its fact, so a process that is killed
 * takes at most the last second's with it; everything else in the log is written with what it tells of.
 */
import { randomUUID } from 'node:crypto'
import type { AuditFact } from '@integration-host/shared/contracts/audit'
import type { CredentialStore } from './credential-store.ts'
import { auditFactOf } from './outbox.ts'

export interface IssuanceLog extends AsyncDisposable {
  count(name: string, version: number, who: string): void
}

const GATHER_MS = 1_000
/** While the store is away: different ones beyond this many are told as one fact without a name. */
const MOST = 10_000

export function createIssuanceLog(deps: {
  readonly store: Pick<CredentialStore, 'record'>
  readonly now: () => number
  readonly notifyOutbox: () => void
}): IssuanceLog {
  const { store, now, notifyOutbox } = deps
  let gathered = new Map<string, { readonly fact: AuditFact; count: number }>()
  /** On its way, or tried again: the same facts under the same id, so that they count once. */
  let batch: { readonly id: string; readonly facts: readonly AuditFact[] } | null = null
  let writing: Promise<void> = Promise.resolve()
  let timer: NodeJS.Timeout | undefined

  function count(name: string, version: number, who: string): void {
    const key = `${who} ${name} ${version}`
    const known = gathered.get(key)
    if (known !== undefined) known.count += 1
    else if (gathered.size >= MOST && name !== '') return count('', 0, 'many')
    else
      gathered.set(key, {
        fact: auditFactOf({ name, version }, { at: now(), who, what: 'handed_out' }),
        count: 1,
      })
    timer ??= setTimeout(() => void flush(), GATHER_MS)
  }

  function flush(): Promise<void> {
    clearTimeout(timer)
    timer = undefined
    writing = writing.then(write)
    return writing
  }

  async function write(): Promise<void> {
    try {
      while (batch !== null || gathered.size > 0) {
        batch ??= take()
        await store.record(batch.facts, batch.id)
        batch = null
        notifyOutbox()
      }
    } catch {
      timer ??= setTimeout(() => void flush(), GATHER_MS)
    }
  }

  function take() {
    const facts = [...gathered.values()].map(({ fact, count: Count }) => ({ ...fact, Count }))
    gathered = new Map()
    return { id: randomUUID(), facts }
  }

  return {
    count,
    async [Symbol.asyncDispose]() {
      await flush()
      clearTimeout(timer)
    },
  }
}
