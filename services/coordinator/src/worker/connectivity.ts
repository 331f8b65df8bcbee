import { setTimeout as delay } from 'node:timers/promises'

export interface ConnectivityOptions {
  /**
   * The probes. Each resolves with true if its target has responded, or else with false. One response suffices to show
   * that the internet is reachable. Without probes the internet always counts as reachable.
   */
  readonly probes: readonly ((signal: AbortSignal) => Promise<boolean>)[]
  readonly onlineIntervalMs?: number
  readonly offlineIntervalMs?: number
  /**
   * Milliseconds between the first failed round of probes and the second round. If the second round fails too, the
   * internet counts as unreachable.
   */
  readonly confirmMs?: number
  readonly probeTimeoutMs?: number
}

/**
 * Checks whether the internet is reachable. It counts as unreachable when two rounds of probes in a row have failed;
 * the second round follows shortly after the first. It counts as reachable again after one successful round.
 */
export function createConnectivity(options: ConnectivityOptions) {
  const { probes } = options
  const { onlineIntervalMs = 5_000, offlineIntervalMs = 1_000, confirmMs = 500 } = options
  const { probeTimeoutMs = 2_000 } = options
  const shutdown = new AbortController()
  const listeners = new Set<(isOnline: boolean) => void>()
  let isOnline: boolean | null = null
  /** The check in flight, and the check that follows it if a caller has requested one meanwhile. */
  let checking: Promise<boolean> | null = null
  let following: Promise<boolean> | null = null
  /**
   * Aborting this controller ends the current pause between two rounds. It is aborted when the result of a check has
   * changed, because the length of the pause depends on the result.
   */
  let pause = new AbortController()

  const round = async (): Promise<boolean> => {
    const enough = new AbortController()
    const signal = AbortSignal.any([
      enough.signal,
      shutdown.signal,
      AbortSignal.timeout(probeTimeoutMs),
    ])
    try {
      await Promise.any(
        probes.map(async (probe) => {
          if (!(await probe(signal))) throw new Error('no response')
        }),
      )
      return true
    } catch {
      return false
    } finally {
      enough.abort()
    }
  }

  const decide = async (): Promise<boolean> => {
    let result = probes.length === 0 || (await round())
    if (!result && isOnline !== false && !shutdown.signal.aborted) {
      await delay(confirmMs, null, { signal: shutdown.signal }).catch(() => {})
      result = await round()
    }
    if (shutdown.signal.aborted) return isOnline ?? false
    if (result !== isOnline) {
      isOnline = result
      for (const listener of listeners) listener(result)
      pause.abort()
    }
    return result
  }
  /** Starts a check, or joins the one in flight. */
  const checkOrJoin = (): Promise<boolean> =>
    (checking ??= decide().finally(() => (checking = null)))
  const check = (): Promise<boolean> => {
    if (checking === null) return checkOrJoin()
    // A successful probe of the check in flight may be older than the failure for which the caller requests a check.
    following ??= checking.then((wasOnline) => {
      following = null
      return wasOnline ? checkOrJoin() : false
    })
    return following
  }

  const poll = async (): Promise<void> => {
    while (!shutdown.signal.aborted) {
      await checkOrJoin()
      if (probes.length === 0) return
      const ms = isOnline ? onlineIntervalMs : offlineIntervalMs
      pause = new AbortController()
      const signal = AbortSignal.any([pause.signal, shutdown.signal])
      await delay(ms, null, { signal }).catch(() => {})
    }
  }

  return {
    /**
     * Runs the probes now. Called when a call has failed, possibly because the internet is unreachable. So the result is true
     * only if a probe that was sent after this request has succeeded.
     */
    check,
    /** Starts to run the probes at intervals. `onChange` is called with the first result and with each change. */
    watch(onChange: (isOnline: boolean) => void): AsyncDisposable {
      listeners.add(onChange)
      const polling = poll()
      return {
        async [Symbol.asyncDispose]() {
          shutdown.abort()
          await polling
        },
      }
    },
  }
}
