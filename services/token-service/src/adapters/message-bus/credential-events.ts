/**
 * Publishes the entries of the credential store's outbox.
 *
 * Each entry is first written to the audit log, even while the broker is unavailable. The events of the entry are then
 * published to the exchange `integration.credentials` in order: each event waits for the broker's confirm of the
 * previous one. The store deletes an entry only after the broker has confirmed all its events.
 *
 * Only one replica publishes at a time. If a process dies between the confirm of an event and the deletion of its
 * entry, the next process publishes the event again with the same message id.
 */
import {
  credentialMessageId,
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential'
import type { OutboxEntry } from '../../credential/outbox.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import type { CredentialStore } from '../../credential/credential-store.ts'
import type { CustodyDeps } from '../../credential/custody-deps.ts'

export interface CredentialEventsDeps extends Pick<CustodyDeps, 'owner' | 'sleep' | 'onError'> {
  readonly bus: MessageBus
  readonly store: Pick<CredentialStore, 'audit' | 'readOutbox' | 'trimOutbox' | 'releaseOutbox'>
}

const BATCH = 100
const AUDIT_BATCH = 500
/**
 * The duration of the relay lease, in milliseconds. It is longer than any publish takes. Each batch renews the lease.
 */
const LEASE_MS = 15_000
/** How often this process checks the outbox for entries that other replicas have added, in milliseconds. */
const POLL_MS = 500

export function relayCredentialEvents(deps: CredentialEventsDeps) {
  const { bus, store, owner } = deps
  let pause = new AbortController()
  let isShuttingDown = false
  let isDeclared = false
  let failures = 0

  /** Publishes one batch of outbox entries. Resolves with `true` if the outbox may contain more entries. */
  async function relayBatch(): Promise<boolean> {
    const entries = await store.readOutbox(owner, LEASE_MS, BATCH)
    if (entries === null || entries.length === 0) return false
    const confirmed: string[] = []
    const startedAt = performance.now()
    try {
      for (const entry of entries) {
        // `readOutbox` renews the lease, and nothing renews it during a batch. A batch therefore ends after half the
        // duration of the lease.
        if (performance.now() - startedAt > LEASE_MS / 2) break
        for (const event of entry.events) await bus.publish(messageOf(event))
        confirmed.push(entry.id)
      }
    } finally {
      await store.trimOutbox(confirmed)
    }
    return true
  }

  async function loop(): Promise<void> {
    for (;;) {
      const isLast = isShuttingDown
      let hasMore = false
      try {
        while ((await store.audit(AUDIT_BATCH)) > 0);
        if (!isDeclared) {
          await bus.declare({
            exchanges: [{ name: CREDENTIALS_EXCHANGE, type: 'topic' }],
            queues: [],
          })
          isDeclared = true
        }
        hasMore = await relayBatch()
        failures = 0
      } catch (error) {
        failures += 1
        if (!(error instanceof IntegrationError)) deps.onError(error)
      }
      // The lease is released after a failure and at shutdown, so that another replica that reaches the broker can
      // publish at once.
      if (failures > 0 || isLast) await store.releaseOutbox(owner).catch(() => {})
      if (isLast) return
      if (hasMore) continue
      const pauseMs =
        failures === 0
          ? POLL_MS
          : backoffMs(failures, { baseMs: 200, capMs: 2_000, random: 0.5 + Math.random() / 2 })
      await deps.sleep(pauseMs, pause.signal)
      if (pause.signal.aborted) pause = new AbortController()
    }
  }

  const looping = loop()
  return {
    /**
     * Publishes the entries of the outbox at once instead of at the next poll. Called after this process has added an
     * outbox entry.
     */
    wake(): void {
      // After a failure, a new outbox entry does not shorten the back-off before the next attempt.
      if (failures === 0) pause.abort()
    },
    async [Symbol.asyncDispose](): Promise<void> {
      isShuttingDown = true
      pause.abort()
      await looping
    },
  }
}

const messageOf = ({ kind, event }: OutboxEntry['events'][number]) => ({
  exchange: CREDENTIALS_EXCHANGE,
  routingKey: credentialRoutingKey(kind),
  messageId: credentialMessageId(event, kind),
  type: credentialRoutingKey(kind),
  body: event,
  mandatory: false,
})
