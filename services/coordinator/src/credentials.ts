/** Creates and connects the parts that react to changes of credentials: waiting runs, change feeds and erasures. */
import type { Logger } from '@integration-host/shared/observability/logger'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { onCredentialUsable, onErasureRequested } from './adapters/message-bus/credential-events.ts'
import type { ChangeWaits } from './change/change-waits.ts'
import type { ChangeCursors } from './change-feed/change-cursors.ts'
import type { Triggers } from './triggers.ts'
import { createRealmErasure } from './erasure/erase-removed-realms.ts'
import type { ClosingDates } from './step/closing-dates.ts'
import type { Erase } from './erasure/erasure.ts'
import type { RunActions } from './worker/run-actions.ts'
import type { StoreRetry } from './worker/store-retry.ts'

export interface CredentialDeps {
  readonly bus: MessageBus
  readonly cursors: Pick<ChangeCursors, 'removeCursor'>
  readonly closingDates: Pick<ClosingDates, 'forget'>
  readonly changeWaits: Pick<ChangeWaits, 'removeRealm'>
  readonly runActions: Pick<RunActions, 'wake'>
  readonly triggers: Pick<Triggers, 'onCredentialUsable'>
  readonly erase: Erase
  readonly retryStore: StoreRetry
  readonly owner: string
  readonly log: Logger
}

export async function followCredentials(deps: CredentialDeps): Promise<AsyncDisposable> {
  const { bus, cursors, runActions, triggers, erase, retryStore, owner, log } = deps
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
      erase,
      async forget(realm) {
        await cursors.removeCursor(realm)
        await deps.closingDates.forget(realm)
        await deps.changeWaits.removeRealm(realm)
      },
      retryStore,
      shutdown: shutdown.signal,
      log,
    }),
  )
  stack.defer(async () => {
    shutdown.abort()
    await erasures.cancel()
  })
  return stack.move()
}
