/**
 * Moves outbox entries into the audit log, whether the broker is available or not, and then publishes their
 * events to the exchange `integration.credentials`: in order, each one confirmed by the broker before the next is
 * published and before the store deletes it. One replica relays at a time. If a process dies between confirm and
 * trim, an event is published twice, with the same message id.
 */
import {
  credentialMessageId,
  CREDENTIALS_EXCHANGE,
  credentialRoutingKey,
} from '@integration-host/shared/contracts/credential-event'
import type { OutboxEntry } from '../../credential/outbox.ts'
import { IntegrationError } from '@integration-host/shared/errors'
import { backoffMs } from '@integration-host/shared/process/backoff'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import type { CredentialStore } from '../../credential/credential-store.ts'

export interface CredentialEventsDeps {
  readonly bus: MessageBus
  readonly store: Pick<CredentialStore, 'audit' | 'readOutbox' | 'trimOutbox' | 'releaseOutbox'>
  /** Identifies this process in the relay lease. */
  readonly owner: string
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>
  /** Receives unexpected errors. An unavailable store or broker is logged by its health check. */
  readonly onError: (error: unknown) => void
}

export interface CredentialEvents extends AsyncDisposable {
  /** Starts the relay at once, because the outbox has a new entry. */
  wake(): void
}

const BATCH = 100
const AUDIT_BATCH = 500
/** Longer than publishing one event may take: the lease is renewed with each batch. */
const LEASE_MS = 15_000
/** How often the outbox is polled for entries of other replicas. */
const POLL_MS = 500

export function relayCredentialEvents(deps: CredentialEventsDeps): CredentialEvents {
  const { bus, store, owner } = deps
  let pause = new AbortController()
  let isShuttingDown = false
  let isDeclared = false
  let failures = 0

  /** Publishes a batch; resolves with `true` if there may be more. */
  async function relayBatch(): Promise<boolean> {
    const entries = await store.readOutbox(owner, LEASE_MS, BATCH)
    if (entries === null || entries.length === 0) return false
    const confirmed: string[] = []
    const startedAt = performance.now()
    try {
      for (const entry of entries) {
        // After half the lease time the batch ends, because the next one renews the lease first.
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
      // Another replica may reach the broker, and must not wait for the lease of a process that shuts down.
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
    wake() {
      // During back-off a new entry must not cause an earlier attempt.
      if (failures === 0) pause.abort()
    },
    async [Symbol.asyncDispose]() {
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
