export interface ReadLoop {
  /** Resolves when the loop has ended, after `signal` was aborted. */
  readonly ended: Promise<void>
  /**
   * Ends the current pause. Resolves when a read has ended that began after this call. Calls during a read in flight
   * cause one further read together.
   */
  readAgain(): Promise<void>
}

/**
 * Calls `read` until `signal` is aborted, with a pause of `everyMs` after each call. `read` must not throw.
 */
export function startReadLoop(
  read: () => Promise<void>,
  everyMs: number,
  signal: AbortSignal,
): ReadLoop {
  let waiting: (() => void)[] = []
  let endPause = (): void => {}
  const pause = (): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, everyMs)
      endPause = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  const onAbort = (): void => endPause()
  signal.addEventListener('abort', onAbort)

  async function run(): Promise<void> {
    while (!signal.aborted) {
      const answered = waiting
      waiting = []
      await read()
      for (const done of answered) done()
      if (waiting.length === 0 && !signal.aborted) await pause()
    }
    for (const done of waiting) done()
    signal.removeEventListener('abort', onAbort)
  }

  return {
    ended: run(),
    readAgain: () =>
      new Promise((resolve) => {
        if (signal.aborted) return resolve()
        waiting.push(resolve)
        endPause()
      }),
  }
}
