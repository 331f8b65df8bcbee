/**
 * Verifies hints that a company has disconnected the application. The provider sends the company's browser to `GET
 * /disconnected`, which requires no key, so anyone can send such a hint about any company.
 *
 * D1  A hint alone changes nothing. It causes a refresh, and the credential gets the fault `disconnected` only if the
 *     provider rejects the refresh token.
 * D2  At most one hint per company and minute causes a refresh, over all replicas. In each process, hints cause at most
 *     `REFRESHES.count` refreshes a minute. Further hints are dropped.
 * D3  The sender of a hint learns nothing about the company, because the response does not wait for the refresh.
 */
import { createRateLimit } from '@integration-host/shared/process/limits'
import type { CustodyDeps } from './custody-deps.ts'
import { isProvisional, isTerminal } from './fault.ts'
import type { RefreshRoutine } from './refresh.ts'

const INTERVAL_MS = 60_000
/**
 * The maximum number of refreshes that hints cause. Without this limit, a flood of hints would displace the other
 * entries of the audit log.
 */
const REFRESHES = { count: 20, intervalMs: INTERVAL_MS }
/** The maximum number of hints that are processed at the same time, because each hint reads the store. */
const MAX_IN_FLIGHT = 16

export interface DisconnectHintsDeps extends Pick<CustodyDeps, 'store' | 'onError'> {
  readonly routine: Pick<RefreshRoutine, 'refresh'>
  /**
   * Admits a hint about a credential. Resolves with `false` if another hint was admitted less than `intervalMs` ago, at
   * any replica.
   */
  readonly admit: (name: string, intervalMs: number) => Promise<boolean>
}

export type DisconnectHints = ReturnType<typeof createDisconnectHints>

export function createDisconnectHints(deps: DisconnectHintsDeps) {
  const { store, routine } = deps
  const refreshes = createRateLimit({ ...REFRESHES, now: () => performance.now() })
  const inFlight = new Map<string, Promise<void>>()

  async function verify(name: string): Promise<void> {
    const credential = await store.get(name)
    // A provisional fault `disconnected` is confirmed only by the scheduled retries of the refresh (due-refreshes.ts).
    // Otherwise a second hint could make it final during a short outage of the provider.
    if (credential === null || isTerminal(credential.fault)) return
    if (credential.fault?.Code === 'disconnected') return
    // The limit on refreshes is checked before the hint is recorded. Otherwise a hint that is dropped by this limit
    // would block the next hint about its company for a minute.
    if (!refreshes.take() || !(await deps.admit(name, INTERVAL_MS))) return
    const { version } = credential
    const goal = { kind: 'newer', version, force: true, isDisconnectReported: true } as const
    const result = await routine.refresh(name, goal, 'browser')
    // If the rejected refresh was already in flight when the hint arrived, its fault is not `disconnected`. A second
    // refresh then takes the hint into account.
    if (result.kind !== 'faulted' || result.fault.Code === 'disconnected') return
    if (isProvisional(result.fault)) await routine.refresh(name, goal, 'browser')
  }

  return {
    /** Processes a hint about a credential in the background. */
    follow(name: string): void {
      if (inFlight.size >= MAX_IN_FLIGHT || inFlight.has(name)) return
      const work = verify(name)
        .catch(deps.onError)
        .finally(() => inFlight.delete(name))
      inFlight.set(name, work)
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await Promise.all(inFlight.values())
    },
  }
}
