/**
 * The refresh routine of every stored credential, from one index ordered by time. The index is in the store,
 * so a start reads one range of it, however many credentials there are, and a credential that any replica
 * stores is scheduled for all.
 */
import type { CredentialStore } from './credential-store.ts'
import type { RefreshRoutine } from './refresh.ts'

export interface ScheduleDeps {
  readonly store: Pick<CredentialStore, 'takeDue'>
  readonly routine: Pick<RefreshRoutine, 'refresh'>
  readonly now: () => number
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
  /** Refreshes started at a time. */
  readonly concurrency: number
  /** The store or a refresh failed in a way that is nobody's answer to give. */
  readonly onError: (error: unknown) => void
}

/** No sooner looked again than this, no later than that. */
const PAUSE_MS = { shortest: 50, longest: 1_000 } as const
/** A credential taken and not brought back (the process died) is due again after this long. */
const HOLD_MS = 30_000

/** Refreshes what is due until disposed; refreshes in hand are the routine's to finish. */
export function startSchedule(deps: ScheduleDeps): AsyncDisposable {
  const { store, routine, now } = deps
  const leaving = new AbortController()
  const inHand = new Set<Promise<void>>()

  function start(name: string): void {
    const task = routine
      .refresh(name, { kind: 'fresh' }, 'routine')
      .then(() => {}, deps.onError)
      .finally(() => inHand.delete(task))
    inHand.add(task)
  }

  async function loop(): Promise<void> {
    while (!leaving.signal.aborted) {
      let pauseMs: number = PAUSE_MS.longest
      const free = deps.concurrency - inHand.size
      if (free > 0) {
        try {
          const { names, nextAt } = await store.takeDue(now(), free, HOLD_MS)
          for (const name of names) start(name)
          if (nextAt !== null) pauseMs = nextAt - now()
        } catch (error) {
          deps.onError(error)
        }
      } else {
        await Promise.race(inHand)
        pauseMs = 0
      }
      const bounded = Math.min(PAUSE_MS.longest, Math.max(PAUSE_MS.shortest, pauseMs))
      await deps.sleep(bounded, leaving.signal)
    }
  }

  const looping = loop()
  return {
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await looping
    },
  }
}
