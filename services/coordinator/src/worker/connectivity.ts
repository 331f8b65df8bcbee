import { setTimeout as delay } from 'node:timers/promises'

/** Whether the internet is reachable, according to the probes. */
export interface Connectivity {
  /** Runs the probes now. Called when a call has failed, possibly because the internet is unreachable. */
  readonly check: () => Promise<boolean>
  /** Starts to run the probes at intervals. `onChange` is called with the first result and with each change. */
  watch(onChange: (isOnline: boolean) => void): AsyncDisposable
}

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
export function createConnectivity(options: ConnectivityOptions): Connectivity {
  const { probes } = options
  const { onlineIntervalMs = 5_000, offlineIntervalMs = 1_000, confirmMs = 500 } = options
  const { probeTimeoutMs = 2_000 } = options
  const shutdown = new AbortController()
  const listeners = new Set<(isOnline: boolean) => void>()
  let isOnline: boolean | null = null
  let checking: Promise<boolean> | null = null
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
  const check = (): Promise<boolean> => (checking ??= decide().finally(() => (checking = null)))

  const poll = async (): Promise<void> => {
    while (!shutdown.signal.aborted) {
      await check()
      if (probes.length === 0) return
      const ms = isOnline ? onlineIntervalMs : offlineIntervalMs
      pause = new AbortController()
      const signal = AbortSignal.any([pause.signal, shutdown.signal])
      await delay(ms, null, { signal }).catch(() => {})
    }
  }

  return {
    check,
    watch(onChange) {
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
