/**
 * Refreshes every stored credential when its refresh is due. The due times are an index in the store that all replicas
 * share. Each replica can therefore start the refresh of any credential, whichever replica stored it. A starting
 * process reads only a range of the index instead of every credential.
 */
import type { CustodyDeps } from './custody-deps.ts'
import type { RefreshRoutine } from './refresh.ts'

export interface DueRefreshesDeps extends Pick<CustodyDeps, 'store' | 'now' | 'sleep' | 'onError'> {
  readonly routine: Pick<RefreshRoutine, 'refresh'>
  /** The maximum number of scheduled refreshes that run at the same time. */
  readonly concurrency: number
}

/** The minimum and the maximum time between two reads of the index, in milliseconds. */
const PAUSE_MS = { shortest: 50, longest: 1_000 } as const
/**
 * The time after which the refresh of a credential is due again, in milliseconds, unless the refresh has stored another
 * time with its token pair or its failure. It stores none if the process died, if it sent nothing or was deferred (another
 * replica refreshes, calls to the provider are blocked, the store has failed over, the process shuts down), or if it threw
 * an error.
 */
const POSTPONE_MS = 30_000

/**
 * Starts due refreshes until the returned object is disposed. Refreshes that have already started continue to their
 * end.
 */
export function startDueRefreshes(deps: DueRefreshesDeps): AsyncDisposable {
  const { store, routine, now } = deps
  const shutdown = new AbortController()
  const inFlight = new Set<Promise<void>>()

  function start(name: string): void {
    const task = routine
      .refresh(name, { kind: 'fresh' }, 'routine')
      .then(() => {}, deps.onError)
      .finally(() => inFlight.delete(task))
    inFlight.add(task)
  }

  async function loop(): Promise<void> {
    while (!shutdown.signal.aborted) {
      let pauseMs: number = PAUSE_MS.longest
      const free = deps.concurrency - inFlight.size
      if (free > 0) {
        try {
          const { names, nextAt } = await store.takeDue(now(), free, POSTPONE_MS)
          for (const name of names) start(name)
          if (nextAt !== null) pauseMs = nextAt - now()
        } catch (error) {
          deps.onError(error)
        }
      } else {
        await Promise.race(inFlight)
        pauseMs = 0
      }
      const bounded = Math.min(PAUSE_MS.longest, Math.max(PAUSE_MS.shortest, pauseMs))
      await deps.sleep(bounded, shutdown.signal)
    }
  }

  const looping = loop()
  return {
    async [Symbol.asyncDispose]() {
      shutdown.abort()
      await looping
    },
  }
}
