/** Creates and connects the parts that react to changes of credentials: waiting runs, change feeds and erasures. */
import { parseMessageAs } from '@integration-host/shared/json'
import {
  CredentialEvent,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import {
  CREDENTIALS_QUEUE,
  credentialsTopology,
  ERASURES_QUEUE,
} from '@integration-host/shared/contracts/topology'
import {
  misaddressed,
  type Consumer,
  type MessageBus,
} from '@integration-host/shared/messaging/message-bus'
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

const usable = [credentialRoutingKey('stored'), credentialRoutingKey('refreshed')]

/**
 * Calls `onUsable` for each credential that was stored or refreshed. If the returned promise rejects, the event is
 * delivered again.
 */
async function onCredentialUsable(
  bus: MessageBus,
  tag: string,
  onUsable: (name: string) => Promise<void>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(CREDENTIALS_QUEUE, { prefetch: 8, tag }, async (delivery) => {
    const event = parseMessageAs(CredentialEvent, delivery.content)
    if (event === null || misaddressed(delivery, ...usable) !== null) return 'ack'
    await onUsable(event.Name)
    return 'ack'
  })
}

/**
 * Calls `erase` for each removed credential if its removal event requests the erasure of the company's runs. If `erase`
 * resolves with false, the event is delivered again.
 */
export async function onErasureRequested(
  bus: MessageBus,
  tag: string,
  erase: (name: string) => Promise<boolean>,
): Promise<Consumer> {
  await bus.declare(credentialsTopology)
  return bus.consume(ERASURES_QUEUE, { prefetch: 1, tag }, async (delivery) => {
    const event = parseMessageAs(CredentialEvent, delivery.content)
    if (event?.erase !== true) return 'ack'
    // An account that may publish other events could otherwise have the runs of a company erased.
    if (misaddressed(delivery, credentialRoutingKey('removed')) !== null) return 'ack'
    return (await erase(event.Name)) ? 'ack' : 'requeue'
  })
}
