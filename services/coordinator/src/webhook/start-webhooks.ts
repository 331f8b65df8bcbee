/** Stores the webhooks of credential events, and starts the runs that deliver them. */
import { WEBHOOKS_QUEUE, webhooksTopology } from '@integration-host/shared/contracts/topology'
import { parseMessageAs } from '@integration-host/shared/json'
import { type MessageBus, misaddressed } from '@integration-host/shared/messaging/message-bus'
import type { Run } from '../run/run.ts'
import { isOver } from '../run/status.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type Periodic, startPolling } from '../worker/polling.ts'
import { ABORTED, type StoreRetry } from '../worker/store-retry.ts'
import type { Receiver } from './receivers.ts'
import { webhooksOfCredential } from './webhook.ts'
import { type WebhookBacklog, webhookBacklog } from './webhook-backlog.ts'
import { CredentialEvent, credentialEventKind } from '@integration-host/shared/contracts/credential'
import { type TransactionEvent, WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'

export interface WebhookStarterDeps extends Periodic {
  readonly source: Pick<TransactionSource, 'records' | 'startWebhooks'>
  /** Publishes the first messages of new runs. */
  readonly publish: (runs: readonly Run[]) => void
  readonly onBacklog: (backlog: readonly WebhookBacklog[]) => void
}

export interface WebhookStarter extends AsyncDisposable {
  /** Called for each transition of this replica. */
  readonly onTransition: (event: TransactionEvent) => void
  /** Requests a poll soon. Called when a webhook was stored or the run of a webhook has ended. */
  hint(): void
}

const BATCH = 500
/** The milliseconds from a request for a poll to the poll, which finds the webhooks of many transitions. */
const HINT_MS = 10

/**
 * Queues the run of each webhook when the runs of all earlier webhooks of the same receiver and realm have ended. The
 * store is also polled at intervals, because the request for a poll is lost if a replica crashes directly after it has
 * committed a transition.
 */
export function startWebhookRuns(deps: WebhookStarterDeps): WebhookStarter {
  const { source, log, intervalMs } = deps
  let hinted: NodeJS.Timeout | null = null
  let countedAt = Number.NEGATIVE_INFINITY

  async function poll(): Promise<boolean> {
    for (let hasMore = true; hasMore;) {
      const started = await source.startWebhooks(BATCH)
      deps.publish(started.runs)
      hasMore = started.hasMore
    }
    if (performance.now() - countedAt >= intervalMs / 2) {
      countedAt = performance.now()
      // After a failed count, the next poll does not count again: the count may have exceeded the time limit of
      // statements, and would do so again.
      try {
        deps.onBacklog(await webhookBacklog(source))
      } catch (error) {
        log.warn({ err: error }, 'counting the undelivered webhooks failed')
      }
    }
    return true
  }

  const polling = startPolling({ ...deps, task: 'start of webhooks', poll })
  const hint = (): void => {
    hinted ??= setTimeout(() => {
      hinted = null
      polling.pollSoon()
    }, HINT_MS).unref()
  }
  return {
    hint,
    onTransition({ Process, Status }) {
      // If a run waits for its next attempt, its step may be in doubt. The transition may then have stored webhooks
      // that report the doubt. A run of the process `Webhook` is excluded, because no webhooks are stored for such a
      // run.
      if (isOver(Status) || (Status === 'Retrying' && Process !== WEBHOOK_PROCESS)) hint()
    },
    [Symbol.asyncDispose]: () => polling[Symbol.asyncDispose](),
  }
}

export interface WebhooksDeps extends WebhookStarterDeps {
  readonly source: TransactionSource
  readonly bus: MessageBus
  readonly receivers: () => readonly Receiver[]
  readonly owner: string
  readonly retryStore: StoreRetry
}

/**
 * Starts all of it. Only one replica consumes credential events at a time, one event after another, so those of a company
 * stay in order.
 */
export async function startWebhooks(deps: WebhooksDeps): Promise<WebhookStarter> {
  const { source, bus, receivers, owner, retryStore } = deps
  await using stack = new AsyncDisposableStack()
  const starter = stack.use(startWebhookRuns(deps))
  const shutdown = new AbortController()
  await bus.declare(webhooksTopology)
  const options = { prefetch: 1, tag: `${owner} webhooks` }
  const consumer = bus.consume(WEBHOOKS_QUEUE, options, async (delivery) => {
    const { routingKey, content } = delivery
    const event = parseMessageAs(CredentialEvent, content)
    const kind = credentialEventKind(routingKey)
    if (event === null || kind === null || misaddressed(delivery, routingKey) !== null)
      return 'reject'
    const webhooks = webhooksOfCredential(receivers(), kind, event)
    const stored = await retryStore(() => source.addWebhooks(webhooks), shutdown.signal)
    starter.hint()
    return stored === ABORTED ? 'requeue' : 'ack'
  })
  stack.defer(async () => {
    shutdown.abort()
    await consumer.cancel()
  })
  const owned = stack.move()
  return { ...starter, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}
