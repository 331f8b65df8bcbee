/**
 * Keeps each stored token pair in memory for a while, and stores it again if the store loses it.
 *
 * Redis replicates asynchronously, so a failover may lose the newest writes although Redis had acknowledged them. The
 * process that made these writes still has the token pairs. Each time the connection of this process is established
 * again, the process compares these token pairs with the store (restoration.ts).
 *
 * A token pair is kept for `KEEP_MS`. This is longer than the time for which an isolated primary still accepts writes.
 * While the connection is lost, no token pair is dropped, however long the failover takes.
 */
import { labelsChangeOf } from './labels.ts'
import type { CredentialStore, StoreConnection } from './credential-store.ts'
import type { CustodyDeps } from './custody-deps.ts'
import {
  createRestorations,
  type KeptPair,
  type RescueFolder,
  type RestorationOutcome,
} from './restoration.ts'

const KEEP_MS = 60_000
/** The maximum number of token pairs in memory. Each takes a few kilobytes. */
const MAX_PAIRS = 5_000
const SWEEP_MS = 10_000

export interface RestorationReport {
  readonly name: string
  readonly version: number
  readonly source: 'memory' | 'file'
  readonly outcome: Exclude<RestorationOutcome, 'failed'>
}

export interface RecentPairsDeps extends Pick<
  CustodyDeps,
  'store' | 'owner' | 'sleep' | 'notifyOutbox' | 'onError'
> {
  readonly connection: StoreConnection
  /** The folder for token pairs that cannot be committed; `null` if `RESCUE_DIR` is not set. */
  readonly rescue: RescueFolder | null
  /**
   * Called for each token pair that was stored again, and for each file of `RESCUE_DIR`. It is not called for a token
   * pair that the store still has.
   */
  readonly report: (report: RestorationReport) => void
}

export function createRecentPairs(deps: RecentPairsDeps) {
  const { store, connection, rescue, report } = deps
  const restorations = createRestorations(deps)
  const recent = new Map<string, { readonly pair: KeptPair; readonly keptAt: number }>()
  /**
   * The token pairs, by credential name, that must still be compared with the store, because the connection was lost
   * after they were stored.
   */
  const unconfirmed = new Map<string, KeptPair>()
  let isConnected = true

  function keep(pair: KeptPair): void {
    const known = recent.get(pair.name)?.pair
    const isSameGrant = known !== undefined && known.grantId === pair.grantId
    const isNewGrant = pair.isNewGrant || (isSameGrant && known.isNewGrant)
    // A token pair from a refresh has no labels, so the labels of its grant are kept with the pair. If the store loses
    // the grant and the token pair, the labels are stored again together with the token pair.
    const labels = isSameGrant ? labelsChangeOf(known.grant) : {}
    recent.delete(pair.name)
    recent.set(pair.name, {
      pair: { ...pair, grant: { ...labels, ...pair.grant }, isNewGrant },
      keptAt: performance.now(),
    })
    const [oldest] = recent.keys()
    if (recent.size > MAX_PAIRS && oldest !== undefined) recent.delete(oldest)
  }

  function forget(name: string): void {
    recent.delete(name)
    unconfirmed.delete(name)
  }

  function dropExpired(): void {
    if (!isConnected) return
    for (const [name, { keptAt }] of recent) {
      // The entries are in the order of their age, so all further entries are newer.
      if (performance.now() - keptAt < KEEP_MS) return
      recent.delete(name)
    }
  }

  async function restore(
    pair: KeptPair,
    source: RestorationReport['source'],
  ): Promise<RestorationOutcome> {
    const outcome = await restorations.restore(pair, { isOnlyCopy: source === 'file' })
    const { name, version } = pair
    if (outcome === 'restored') deps.notifyOutbox()
    if (outcome === 'restored' || (outcome === 'superseded' && source === 'file'))
      report({ name, version, source, outcome })
    return outcome
  }

  /**
   * Called with a token pair that cannot be committed. Writes the pair to `RESCUE_DIR`, and resolves with `false` if
   * `RESCUE_DIR` is not set or the write failed.
   */
  async function save(pair: KeptPair): Promise<boolean> {
    forget(pair.name) // The token pair in memory is older than `pair`.
    try {
      await rescue?.save(pair)
      return rescue !== null
    } catch (error) {
      deps.onError(error)
      return false
    }
  }

  const watch = connection.watch((isEstablished) => {
    isConnected = isEstablished
    for (const { pair } of recent.values()) {
      unconfirmed.set(pair.name, pair)
      if (isEstablished)
        void restore(pair, 'memory').then((outcome) => {
          if (outcome !== 'failed' && unconfirmed.get(pair.name) === pair)
            unconfirmed.delete(pair.name)
        })
    }
  })
  const sweep = setInterval(dropExpired, SWEEP_MS)

  /** Forwards all calls to the given store, and keeps each stored token pair in memory. */
  const keepingStore: CredentialStore = {
    ...store,

    async acquire(name, owner, leaseMs) {
      await restorations.settled(name)
      return store.acquire(name, owner, leaseMs)
    },

    async commit(lease, grant, dueAt, context, options = {}) {
      const outcome = await store.commit(lease, grant, dueAt, context, options)
      if (outcome === 'committed') {
        const { name, grantId } = lease
        const { isNoticeNew = false, version = lease.version + 1 } = options
        keep({ name, version, grantId, isNewGrant: false, grant, dueAt, context, isNoticeNew })
      }
      return outcome
    },

    async put(grant, dueAt, context, options = {}) {
      const credential = await store.put(grant, dueAt, context, options)
      const { name, version } = credential
      const { id: grantId = '' } = options
      const isNoticeNew = grant.expiryNoticeDays !== null
      unconfirmed.delete(name)
      if (grantId === '') recent.delete(name)
      else keep({ name, version, grantId, isNewGrant: true, grant, dueAt, context, isNoticeNew })
      return credential
    },

    async label(name, change, onChanged, version) {
      const labels = await store.label(name, change, onChanged, version)
      const known = recent.get(name)
      if (known !== undefined && typeof labels === 'object')
        recent.set(name, {
          ...known,
          pair: { ...known.pair, grant: { ...known.pair.grant, ...labelsChangeOf(labels) } },
        })
      return labels
    },

    async settle(lease, settlement, context) {
      // An exported token pair belongs to another installation, so it must not be stored here again.
      if (settlement.fault?.Code === 'transferred') forget(lease.name)
      return store.settle(lease, settlement, context)
    },

    async remove(name, revoked, context, version) {
      forget(name)
      return store.remove(name, revoked, context, version)
    },
  }

  return {
    store: keepingStore,
    rescue: save,

    /**
     * Starts to store the token pairs of `RESCUE_DIR`. Resolves when the folder was read, without waiting for the store.
     */
    async restoreFiles(): Promise<void> {
      for (const { pair, remove } of (await rescue?.read()) ?? []) {
        void restore(pair, 'file').then(async (outcome) => {
          if (outcome !== 'failed') await remove().catch(deps.onError)
        })
      }
    },

    async [Symbol.asyncDispose](): Promise<void> {
      clearInterval(sweep)
      watch[Symbol.dispose]()
      await restorations[Symbol.asyncDispose]()
      for (const pair of unconfirmed.values()) await save(pair)
    },
  }
}
