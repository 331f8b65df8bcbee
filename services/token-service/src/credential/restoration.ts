/**
 * Stores a token pair again if the store does not have it. Such a token pair was committed and then lost in a failover
 * of the store, or was saved in a file by a process that shut down. A provider that rotates refresh tokens accepts only
 * the newest token pair, so the older token pair in the store is of no use.
 *
 * - As in a refresh, the token pair is committed under a lease, and version and fence are compared (I7 of refresh.ts).
 *   A newer token pair or another grant takes precedence (I8). The token pair keeps its version.
 * - While the token pair of a credential is being restored, this process does not acquire the lease of the credential
 *   for any other purpose. A refresh would send a refresh token that the provider has already rotated.
 * - A restoration ends only when the store has acknowledged the token pair or does not need it, or when the process
 *   shuts down.
 */
import { hasCode, IntegrationError } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import { createSemaphore } from '@integration-host/shared/process/limits'
import type { Credential, Grant } from './credential.ts'
import { type CredentialStore, type Lease, VersionConflict } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import type { AuditContext } from './outbox.ts'

/** A token pair with everything that is needed to commit it again. */
export interface KeptPair {
  readonly name: string
  readonly version: number
  /** Identifies the grant of the token pair (`Lease.grantId`). */
  readonly grantId: string
  /**
   * Whether the store may have lost the grant as well, because the grant was stored only shortly before the token pair.
   */
  readonly isNewGrant: boolean
  readonly grant: Grant
  readonly dueAt: number
  readonly context: AuditContext
  readonly isNoticeNew: boolean
}

/** A folder for token pairs that a process could not commit before it shut down (`RESCUE_DIR`). */
export interface RescueFolder {
  /**
   * Encrypts a token pair and writes it to a file.
   *
   * @throws the file system's error if the file cannot be written.
   */
  save(pair: KeptPair): Promise<void>
  /** Reads all token pairs. A file that cannot be read is logged and kept. */
  read(): Promise<readonly { readonly pair: KeptPair; readonly remove: () => Promise<void> }[]>
}

/**
 * The result of a restoration.
 *
 * - `superseded`: the store has this token pair, a newer one or another grant, or the credential was removed.
 * - `failed`: the process shut down first, or an unexpected error was reported.
 */
export type RestorationOutcome = 'restored' | 'superseded' | 'failed'

export interface RestorationDeps extends Pick<CustodyDeps, 'owner' | 'sleep' | 'onError'> {
  readonly store: Pick<CredentialStore, 'get' | 'acquire' | 'release' | 'commit' | 'put'>
}

const LEASE_MS = 15_000
const CONCURRENCY = 16
const SETTLED_WAIT_MS = 5_000
const RETRY = { baseMs: 50, capMs: 1_000, random: 1 } as const

/**
 * The next step of a restoration. If the outcome of a write is unknown, the write is repeated without another
 * comparison.
 */
type Progress =
  | { readonly step: 'compare' }
  | { readonly step: 'put' }
  | { readonly step: 'commit'; readonly lease: Lease }

export type Restorations = ReturnType<typeof createRestorations>

export function createRestorations(deps: RestorationDeps) {
  const { store, sleep } = deps
  const inFlight = new Map<string, Promise<RestorationOutcome>>()
  const semaphore = createSemaphore(CONCURRENCY)
  const shutdown = new AbortController()

  /** Compares the token pair with the store, and acquires the lease if the token pair must be stored. */
  async function compare(pair: KeptPair, isOnlyCopy: boolean): Promise<Progress | 'superseded'> {
    const { name, version } = pair
    // The store still has most token pairs. This read avoids acquiring a lease for them.
    const stored = await store.get(name)
    if (stored !== null && stored.version >= version)
      return isOnlyCopy ? { step: 'commit', lease: neverHeld(pair, deps.owner) } : 'superseded'
    const acquired = await store.acquire(name, deps.owner, LEASE_MS)
    if (acquired.kind === 'busy') return { step: 'compare' }
    if (acquired.kind === 'absent')
      return pair.isNewGrant && version > (acquired.removedVersion ?? 0)
        ? { step: 'put' }
        : 'superseded'
    const { lease, credential } = acquired.leased
    if (isOlder(credential, lease, pair)) return { step: 'commit', lease }
    await store.release(lease)
    return 'superseded'
  }

  async function proceed(
    pair: KeptPair,
    progress: Progress,
    isOnlyCopy: boolean,
  ): Promise<Progress | Exclude<RestorationOutcome, 'failed'>> {
    const { grant, dueAt, context, version, isNoticeNew } = pair
    switch (progress.step) {
      case 'compare':
        return compare(pair, isOnlyCopy)
      case 'put':
        await store.put(grant, dueAt, context, {
          id: pair.grantId,
          atLeast: version - 1,
          over: null,
        })
        return 'restored'
      case 'commit': {
        const options = { isNoticeNew, version, grantId: pair.grantId }
        const outcome = await store.commit(progress.lease, grant, dueAt, context, options)
        if (outcome === 'fenced') return { step: 'compare' }
        return outcome === 'committed' ? 'restored' : 'superseded'
      }
    }
  }

  async function untilStored(pair: KeptPair, isOnlyCopy: boolean): Promise<RestorationOutcome> {
    let progress: Progress = { step: 'compare' }
    for (let attempt = 1; !shutdown.signal.aborted; attempt += 1) {
      try {
        const next = await proceed(pair, progress, isOnlyCopy)
        if (typeof next === 'string') return next
        const isWaiting = next.step === 'compare'
        progress = next
        if (!isWaiting) continue
      } catch (error) {
        if (error instanceof VersionConflict) progress = { step: 'compare' }
        else if (!hasCode(error, 'store_unavailable')) {
          deps.onError(error)
          return 'failed'
        }
      }
      await sleep(backoffMs(attempt, RETRY), shutdown.signal)
    }
    return 'failed'
  }

  return {
    /**
     * Stores a token pair again if the store does not have it. Restorations of one credential run one after the other.
     * `isOnlyCopy` means that no other copy of the token pair exists, and that the caller deletes this copy after the
     * restoration. If the store has a newer token pair, a restoration with `isOnlyCopy` ends only when the newer token
     * pair is replicated.
     */
    restore(
      pair: KeptPair,
      { isOnlyCopy }: { readonly isOnlyCopy: boolean } = { isOnlyCopy: false },
    ): Promise<RestorationOutcome> {
      const earlier = inFlight.get(pair.name) ?? Promise.resolve()
      const running = earlier
        .then(() => semaphore.run(() => untilStored(pair, isOnlyCopy)))
        .finally(() => {
          if (inFlight.get(pair.name) === running) inFlight.delete(pair.name)
        })
      inFlight.set(pair.name, running)
      return running
    },

    /**
     * Resolves when no restoration of this credential is running.
     *
     * @throws {IntegrationError} `store_unavailable` if a restoration is still running after 5 s.
     */
    async settled(name: string): Promise<void> {
      const running = inFlight.get(name)
      if (running === undefined) return
      const timer = new AbortController()
      const isSettled = await Promise.race([
        running.then(() => true),
        sleep(SETTLED_WAIT_MS, timer.signal).then(() => false),
      ])
      timer.abort()
      if (isSettled) return
      throw new IntegrationError('store_unavailable', `the tokens of ${name} are stored again`, {
        retryAfterSeconds: 1,
      })
    },

    async [Symbol.asyncDispose](): Promise<void> {
      shutdown.abort()
      await Promise.all(inFlight.values())
    },
  }
}

/**
 * Returns a lease that was never acquired, with which a commit stores nothing. The commit returns `superseded` as soon
 * as the newer token pair in the store is replicated, or `fenced` if the store has lost the newer token pair.
 */
const neverHeld = ({ name, version, grantId }: KeptPair, owner: string): Lease => ({
  name,
  owner,
  fence: 0,
  version: version - 1,
  grantId,
})

/** Returns whether the stored token pair is older than `pair`, so that `pair` may replace it. */
function isOlder(stored: Credential, lease: Lease, pair: KeptPair): boolean {
  if (lease.version >= pair.version) return false
  // Another installation has custody of this grant, so its token pair must not be stored here.
  if (stored.fault?.Code === 'transferred' && lease.grantId === pair.grantId) return false
  // Two grants may have the same version. The grant whose token request was later is the newer one.
  return (
    lease.grantId === pair.grantId ||
    (pair.isNewGrant && stored.refreshedAt < pair.grant.refreshedAt)
  )
}
