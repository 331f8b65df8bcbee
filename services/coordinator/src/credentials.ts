/** Creates and connects the parts that react to changes of credentials: waiting runs, change feeds and erasures. */
import { onCredentialUsable, onErasureRequested } from './adapters/message-bus/credential-events.ts'
import type { Core } from './core.ts'
import type { ChangeWaits } from './change/change-waits.ts'
import type { ChangeCursors } from './change-feed/change-cursors.ts'
import type { Triggers } from './triggers.ts'
import type { ClosingDates } from './step/closing-dates.ts'
import { createRealmErasure, type Erase } from './erasure/erasure.ts'
import type { RunActions } from './worker/run-actions.ts'

export interface CredentialDeps extends Pick<Core, 'bus' | 'retryStore' | 'owner' | 'log'> {
  readonly cursors: ChangeCursors
  readonly closingDates: ClosingDates
  readonly changeWaits: ChangeWaits
  readonly runActions: RunActions
  readonly triggers: Triggers
  readonly erase: Erase
}

export async function followCredentials(deps: CredentialDeps): Promise<AsyncDisposable> {
  const { bus, owner, log, runActions, triggers } = deps
  await using stack = new AsyncDisposableStack()
  const credentials = await onCredentialUsable(bus, `${owner} credentials`, async (name) => {
    try {
      await runActions.wake(name)
      await triggers.onCredentialUsable(name)
    } catch (error) {
      // The error is only logged. No retry is needed, because runs that wait for a credential are attempted every five
      // minutes.
      log.warn(
        { err: error },
        'continuing the runs that waited for a credential failed; they are attempted again within five minutes',
      )
    }
  })
  stack.defer(() => credentials.cancel())
  const shutdown = new AbortController()
  const erasures = await onErasureRequested(
    bus,
    `${owner} erasures`,
    createRealmErasure({
      ...deps,
      async forget(realm) {
        await deps.cursors.removeCursor(realm)
        await deps.closingDates.forget(realm)
        await deps.changeWaits.removeRealm(realm)
      },
      shutdown: shutdown.signal,
    }),
  )
  stack.defer(async () => {
    shutdown.abort()
    await erasures.cancel()
  })
  return stack.move()
}
