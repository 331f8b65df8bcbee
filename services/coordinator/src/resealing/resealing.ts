import { setTimeout as sleep } from 'node:timers/promises'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import type { Json } from '../run/json-normalization.ts'
import {
  createPayloads,
  isKeyColumn,
  type OutdatedPayloads,
  type PayloadStore,
  type StoredPayload,
} from '../run/payload.ts'
import { leasedValue } from '../records/installation.ts'
import type { RunKey } from '../run/run.ts'
import { LEASE_MS, type TransactionSource } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'

export interface ResealingDeps extends Periodic {
  readonly source: PayloadStore & Pick<TransactionSource, 'compact'>
  readonly passes: ResealingPasses
  readonly keys: KeyRing
  readonly owner: string
  /** Called with the progress of the last pass, which another replica may have made. */
  readonly onProgress: (progress: ResealingProgress | null) => void
}

export interface ResealingProgress {
  /** The id of the key with which the pass encrypts payloads. */
  readonly keyId: string
  /** The last run that the pass has read; `null` if the pass has read no run yet. */
  readonly after: RunKey | null
  /** The payloads in plain text or sealed with another key; `null` until they are counted. */
  readonly outdated: number | null
  readonly isDone: boolean
}

export type ResealingPasses = ReturnType<typeof createResealingPasses>

/** The store of the passes that encrypt payloads with the active key. One replica at a time makes a pass. */
export function createResealingPasses(source: Pick<TransactionSource, 'records'>) {
  // Earlier versions called their passes `Resealing`, and left the keys of runs in plain text.
  const pass = leasedValue<ResealingProgress>(source, 'Sealing', LEASE_MS)
  return {
    /**
     * Begins a pass over all payloads under a lease, or continues one. Returns `null` if another owner has the lease,
     * or if the last pass with this key was completed less than `everyMs` ago.
     */
    async begin(owner: string, keyId: string, everyMs: number): Promise<ResealingProgress | null> {
      const first: ResealingProgress = { keyId, after: null, outdated: null, isDone: false }
      let progress = first
      const isBegun = await pass.begin(owner, (known, now) => {
        const isOfKey = known?.keyId === keyId
        if (isOfKey && known.isDone && Date.parse(known.RenewedAt) > now - everyMs) return null
        const { after, outdated, isDone } = known ?? first
        progress = isOfKey && !isDone ? { keyId, after, outdated, isDone } : first
        return progress
      })
      return isBegun ? progress : null
    },
    /** Stores the progress and renews the lease. Returns false if another owner has the lease now. */
    save: (owner: string, progress: ResealingProgress): Promise<boolean> =>
      pass.keep(owner, () => progress),
    /** Returns the progress of the last pass; `null` if there was none. */
    last: async (): Promise<ResealingProgress | null> => (await pass.get()) ?? null,
  }
}

/** The number of runs in a batch. The number is small because the payloads of each run may be large. */
const BATCH = 50
const COUNT_BATCH = 1_000
/** Milliseconds between two batches, so that a pass does not slow down the runs. */
const PAUSE_MS = 20
/** The time between two passes with one key. Later ones encrypt what other programs have inserted in plain text. */
const EVERY_MS = 86_400_000
/**
 * Each process makes a pass when it starts, and another one after this time. Until then, a replica with other keys may
 * have been running, and may have written payloads that the last pass has not seen.
 */
const SETTLED_MS = 600_000

/**
 * Encrypts with the active key all payloads that are in plain text or encrypted with another key. The work is done in
 * small batches, by one replica at a time.
 *
 * A pass is followed by another pass in two cases. First, if the pass has replaced payloads: a replica that still has
 * the old keys may have written further payloads meanwhile. Second, if the pass has continued at the position of a lost
 * replica, and therefore has not read all payloads. A payload that cannot be decrypted stays unchanged, and counts as
 * outdated.
 */
export function startResealing(deps: ResealingDeps): AsyncDisposable {
  const { source, passes, keys, owner, log, clock, onProgress } = deps
  const payloads = createPayloads(keys)
  const keyId = keys.activeKeyId
  const startedAt = clock.now()
  /** Whether this process has completed a pass since it started. */
  let hasPassed = false
  let isClosed = false
  /** Whether it was already logged that all payloads are sealed, so that the daily passes do not log this again. */
  let isReported = false

  /** The age of the last pass from which on another pass is due. */
  function everyMs(): number {
    if (!hasPassed) return 0
    const age = clock.now() - startedAt
    return age >= SETTLED_MS && age < 2 * SETTLED_MS ? SETTLED_MS : EVERY_MS
  }

  async function poll(): Promise<boolean> {
    let progress = await passes.begin(owner, keyId, everyMs())
    if (progress === null) {
      onProgress(await passes.last())
      return true
    }
    if (progress.outdated === null) {
      const outdated = await count(progress)
      if (outdated === null) return true
      progress = { ...progress, outdated }
    }
    const isWhole = progress.after === null
    let replaced = 0
    let unreadable = 0
    while (!isClosed) {
      const page = { after: progress.after, limit: BATCH }
      const { payloads: found, next } = await source.outdatedPayloads(keyId, page)
      const sealed = found.flatMap(reseal)
      const done = sealed.length === 0 ? 0 : await source.replacePayloads(sealed)
      if (replaced === 0 && done > 0)
        log.info(
          { keyId, outdated: progress.outdated },
          'started sealing payloads with the active key',
        )
      replaced += done
      unreadable += found.length - sealed.length
      const outdated = Math.max(0, (progress.outdated ?? 0) - done)
      progress = { ...progress, after: next, outdated }
      if (next === null) break
      if (!(await save(progress))) return true
      await sleep(PAUSE_MS)
    }
    if (isClosed) return true
    const isDone = isWhole && replaced === 0
    progress = { keyId, after: null, outdated: isDone ? unreadable : null, isDone }
    await save(progress)
    hasPassed ||= isDone
    if (!isDone) isReported = false
    else if (unreadable > 0)
      log.error({ keyId, unreadable }, 'payloads cannot be decrypted: check PAYLOAD_KEYS')
    else if (!isReported) {
      isReported = true
      log.info({ keyId }, 'all payloads are sealed with the active key')
    }
    return true
  }

  async function save(progress: ResealingProgress): Promise<boolean> {
    onProgress(progress)
    // The files still contain the replaced payloads.
    if (progress.isDone) await source.compact()
    return passes.save(owner, progress)
  }

  /** Counts the payloads that the active key has not encrypted; `null` on shutdown or if another replica makes the pass. */
  async function count(progress: ResealingProgress): Promise<number | null> {
    let outdated = 0
    let after: ResealingProgress['after'] = null
    do {
      const page: OutdatedPayloads = await source.outdatedPayloads(keyId, {
        after,
        limit: COUNT_BATCH,
        isCount: true,
      })
      outdated += page.count
      after = page.next
      if (isClosed || !(await passes.save(owner, progress))) return null
    } while (after !== null)
    return outdated
  }

  function reseal(payload: StoredPayload): (StoredPayload & { readonly by: Json })[] {
    try {
      return [{ ...payload, by: resealed(payload) }]
    } catch (error) {
      if (error instanceof DecryptionError) return []
      throw error
    }
  }

  function resealed(payload: StoredPayload): Json {
    const { Process, column, stored } = payload
    if (isKeyColumn(column))
      return payloads.sealKey(payloads.openKey(stored as string, Process, column), Process, column)
    return column === 'ResponseBody'
      ? payloads.sealText(payloads.openText(stored as string, payload), payload)
      : payloads.sealJson(payloads.openJson(stored, payload), payload)
  }

  const polling = startPolling({ ...deps, task: 'sealing of payloads', poll })
  return {
    [Symbol.asyncDispose]() {
      isClosed = true
      return polling[Symbol.asyncDispose]()
    },
  }
}
