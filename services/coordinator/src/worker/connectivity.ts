import { setTimeout as delay } from 'node:timers/promises'

/** Whether the internet can be reached, as the probes say. */
export interface Connectivity extends AsyncDisposable {
  readonly isOnline: boolean
  /** Asks the probes now: for a call that failed and may have failed for lack of internet. */
  check(): Promise<boolean>
}

export interface ConnectivityOptions {
  /** Each resolves with whether its target answered; any one is enough. None: always online. */
  readonly probes: readonly ((signal: AbortSignal) => Promise<boolean>)[]
  /** Called with each change, the first verdict included. */
  readonly onChange: (isOnline: boolean) => void
  readonly onlineIntervalMs?: number
  readonly offlineIntervalMs?: number
  /** Between the first failed round and the one that decides. */
  readonly confirmMs?: number
  readonly probeTimeoutMs?: number
}

/**
 * Watches the internet. One failed round is a suspicion, the second one right after it is the verdict; one
 * good round brings it back.
 */
export function watchConnectivity(options: ConnectivityOptions): Connectivity {
  const { probes, onChange } = options
  const { onlineIntervalMs = 5_000, offlineIntervalMs = 1_000, confirmMs = 500 } = options
  const { probeTimeoutMs = 2_000 } = options
  const leaving = new AbortController()
  let isOnline: boolean | null = null
  let checking: Promise<boolean> | null = null
  /** Ends the watcher's pause: a check asked for in between changes how soon to look again. */
  let pause = new AbortController()

  const round = async (): Promise<boolean> => {
    const enough = new AbortController()
    const signal = AbortSignal.any([
      enough.signal,
      leaving.signal,
      AbortSignal.timeout(probeTimeoutMs),
    ])
    try {
      await Promise.any(
        probes.map(async (probe) => {
          if (!(await probe(signal))) throw new Error('no answer')
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
    let verdict = probes.length === 0 || (await round())
    if (!verdict && isOnline !== false && !leaving.signal.aborted) {
      await delay(confirmMs, null, { signal: leaving.signal }).catch(() => {})
      verdict = await round()
    }
    if (leaving.signal.aborted) return isOnline ?? false
    if (verdict !== isOnline) {
      isOnline = verdict
      onChange(verdict)
      pause.abort()
    }
    return verdict
  }
  const check = (): Promise<boolean> => (checking ??= decide().finally(() => (checking = null)))

  const watch = async (): Promise<void> => {
    while (!leaving.signal.aborted) {
      await check()
      if (probes.length === 0) return
      const ms = isOnline ? onlineIntervalMs : offlineIntervalMs
      pause = new AbortController()
      const signal = AbortSignal.any([pause.signal, leaving.signal])
      await delay(ms, null, { signal }).catch(() => {})
    }
  }
  const watching = watch()

  return {
    get isOnline() {
      return isOnline ?? false
    },
    check,
    async [Symbol.asyncDispose]() {
      leaving.abort()
      await watching
    },
  }
}
