/**
 * Decides when a tab reads again what it shows. A busy installation has hundreds of changes a second, so a tab repeats
 * its reads at most every `CHANGE_PAUSE_MS`. An action of a person is rare and must be shown soon, so it shortens the
 * pause to `ACTION_PAUSE_MS`.
 */

/** The minimum time between two reads of the same shown page, if changes cause these reads. */
export const CHANGE_PAUSE_MS = 2_000
/** The same, if an action of a person causes the second read. */
export const ACTION_PAUSE_MS = 500

type Key = readonly unknown[]

export interface ReadAgain {
  /** Repeats the queries whose key begins with `key`. If a person has acted, they are repeated sooner. */
  request(key: Key, hasActed?: boolean): void
  stop(): void
}

/** `read` repeats queries, and resolves when they have ended. It must not throw. */
export function createReadAgain(read: (key: Key) => Promise<unknown>): ReadAgain {
  const waiting = new Map<string, Key>()
  let state: 'idle' | 'reading' | 'pausing' | 'stopped' = 'idle'
  let isUrgent = false
  let timer: ReturnType<typeof setTimeout> | undefined
  let readAt = 0

  async function flush(): Promise<void> {
    if (waiting.size === 0) {
      state = 'idle'
      return
    }
    state = 'reading'
    isUrgent = false
    const keys = [...waiting.values()]
    waiting.clear()
    // Repeating a query cancels the same query if it is still in flight. The next repetition therefore begins only
    // after all queries have ended, even if the queries take longer than the pause.
    await Promise.all(keys.map(read))
    if (isStopped()) return
    state = 'pausing'
    readAt = performance.now()
    pause()
  }
  const isStopped = (): boolean => state === 'stopped'
  function pause(): void {
    clearTimeout(timer)
    const end = readAt + (isUrgent ? ACTION_PAUSE_MS : CHANGE_PAUSE_MS)
    timer = setTimeout(() => void flush(), Math.max(0, end - performance.now()))
  }

  return {
    request(key, hasActed = false) {
      if (isStopped()) return
      waiting.set(JSON.stringify(key), key)
      isUrgent ||= hasActed
      if (state === 'idle') void flush()
      else if (state === 'pausing' && hasActed) pause()
    },
    stop() {
      state = 'stopped'
      clearTimeout(timer)
    },
  }
}
