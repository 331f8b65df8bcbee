/**
 * Begins the sweeps that are not scheduled, and reports how far the change feeds were read. A sweep is one pass over
 * the change feed of a company.
 *
 * When the first process subscribes to changes, every company gets a cursor, from which its first sweep reads. A
 * company whose credential becomes usable gets a cursor too. If the cursor of such a company is overdue, the company is
 * swept at once. After a pause of the provider's deliveries, all companies are swept, because deliveries may have been
 * lost.
 */
import { hasCode } from '@integration-host/shared/errors'
import type { CompanyPage, ConnectedCompanies } from '../company/connected-companies.ts'
import type { ChangeCursors } from './change-cursors.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'

export interface FeedWatchDeps extends Periodic {
  readonly cursors: ChangeCursors
  readonly companies: ConnectedCompanies
  /** Whether the change feed is to be read: a process subscribes to changes, and the sweeps are not paused. */
  readonly isActive: () => Promise<boolean>
  readonly sweepAll: (reason: string) => Promise<void>
  /** Begins a sweep of a company. If a sweep with this id exists, nothing happens. */
  readonly sweepOne: (realm: string, id: string) => Promise<void>
  /** Called with the largest lag of a connected company in ms. */
  readonly onLag: (lagMs: number) => void
}

export interface FeedWatch extends AsyncDisposable {
  /** Checks at once whether the change feed is to be read, for example after definitions have changed. */
  readonly soon: () => void
  /** Called for each event that the provider has delivered. */
  readonly onDelivery: () => void
  /** Called when the credential of a company was stored or refreshed. */
  onUsable(realm: string): Promise<void>
}

/**
 * The minimum length of a pause in the deliveries after which all companies are swept. A shorter pause loses no change,
 * because the provider repeats a failed delivery for this long.
 */
const PAUSE_MS = 3_600_000
/** The minimum time between two writes of the delivery time by one replica. */
const KEEP_MS = 60_000
/** A cursor with a greater lag is overdue: sweeps are daily, and a sweep of all companies may take two hours more. */
const OVERDUE_MS = 26 * 3_600_000
const PAGE = 100
/** The interval at which companies without a cursor get one. */
const BEGIN_MS = 3_600_000

export function startFeedWatch(deps: FeedWatchDeps): FeedWatch {
  const { cursors, companies, isActive, log, clock } = deps
  let keptAt = Number.NEGATIVE_INFINITY
  let keeping: Promise<void> | null = null
  let begunAt = Number.NEGATIVE_INFINITY

  /**
   * If the deliveries have paused, begins a sweep of all companies. Then stores the time of this delivery. The sweep is
   * begun first, because a crash between the two actions must not lose the sweep: as long as the time is not stored,
   * the next delivery begins the sweep.
   */
  async function keepDelivery(): Promise<void> {
    const ageMs = await cursors.deliveryAgeMs()
    if (ageMs !== null && ageMs > PAUSE_MS && (await isActive())) {
      const minutes = Math.floor(ageMs / 60_000)
      log.info(
        { minutes },
        'webhooks of the provider arrive again after a pause; the changes of all companies are read',
      )
      await deps.sweepAll(`the provider had delivered nothing for ${minutes} minutes`)
    }
    await cursors.keepDelivery()
    keptAt = clock.now()
  }

  async function beginCursors(): Promise<void> {
    let after: string | null = null
    do {
      const page: CompanyPage = await companies.page(after)
      await Promise.all(page.realms.map((realm) => cursors.beginCursor(realm)))
      after = page.next
    } while (after !== null)
  }

  /**
   * Creates missing cursors, and reports the largest lag of a cursor. Removes the cursors of disconnected companies,
   * because disconnected companies are no longer swept. Resolves with false if there may be more cursors to remove.
   */
  async function poll(): Promise<boolean> {
    if (!(await isActive())) {
      begunAt = Number.NEGATIVE_INFINITY
      deps.onLag(0)
      return true
    }
    // Cursors are created regularly, because the event of a credential may have been consumed by a replica that does
    // not read the change feed.
    if (clock.now() - begunAt >= BEGIN_MS) {
      await beginCursors()
      begunAt = clock.now()
    }
    const oldest = await cursors.oldestCursors(PAGE)
    for (const { realm, lagMs } of oldest) {
      if (lagMs <= OVERDUE_MS || (await companies.isConnected(realm))) {
        deps.onLag(lagMs)
        return true
      }
      await cursors.removeCursor(realm)
    }
    if (oldest.length < PAGE) deps.onLag(0)
    return oldest.length < PAGE
  }

  const polling = startPolling({
    ...deps,
    task: 'change feed',
    poll: () =>
      poll().catch((error: unknown) => {
        if (!hasCode(error, 'token_service_unavailable')) throw error
        log.debug(
          { err: error },
          'lag of the change feeds is unknown because token-service is unavailable',
        )
        return true
      }),
  })

  return {
    soon: () => polling.pollSoon(),
    onDelivery() {
      if (keeping !== null || clock.now() - keptAt < KEEP_MS) return
      keeping = keepDelivery()
        .catch((error: unknown) =>
          log.warn(
            { err: error },
            'the time of the latest webhook could not be stored; the next webhook stores its own time',
          ),
        )
        .finally(() => {
          keeping = null
        })
    },
    async onUsable(realm) {
      if (!(await isActive())) return
      const { lagMs, position } = await cursors.beginCursor(realm)
      if (lagMs > OVERDUE_MS) await deps.sweepOne(realm, `overdue@${position}/${realm}`)
    },
    async [Symbol.asyncDispose]() {
      await polling[Symbol.asyncDispose]()
      await keeping
    },
  }
}
