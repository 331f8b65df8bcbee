/** Creates and connects the parts that deliver webhooks. Without `WEBHOOKS_FILE`, none of them runs. */
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import {
  CredentialEvent,
  credentialEventKind,
  type CredentialEventKind,
} from '@integration-host/shared/contracts/credential'
import { WEBHOOKS_QUEUE, webhooksTopology } from '@integration-host/shared/contracts/topology'
import { parseMessageAs } from '@integration-host/shared/json'
import {
  type Consumer,
  type MessageBus,
  misaddressed,
} from '@integration-host/shared/messaging/message-bus'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/events'
import type { OpenedReceivers } from './adapters/files/webhooks-file.ts'
import { createWebhookPost, type WebhookPostOptions } from './adapters/http/webhook-post.ts'
import type { ProcessDefinition } from './step/definition.ts'
import type { TransactionSource } from './run/transaction-source.ts'
import { createWebhookProcess, type WebhookTiming } from './webhook/deliver.ts'
import {
  startWebhookRuns,
  type WebhookStarter,
  type WebhookStarterDeps,
} from './webhook/start-webhooks.ts'
import { webhooksOfCredential, webhooksOfTransition } from './webhook/webhook.ts'
import { ABORTED, type StoreRetry } from './worker/store-retry.ts'

/** @throws {StartupError} if a process of the user has the name of the built-in process. */
export function addWebhookProcess(
  processes: ReadonlyMap<string, ProcessDefinition>,
  receivers: OpenedReceivers | null,
  {
    now,
    random,
    proxyFor,
    timing = {},
  }: {
    readonly now: () => number
    readonly random: () => number
    readonly proxyFor: ProxyFor
    readonly timing?: WebhookTiming & WebhookPostOptions
  },
): Map<string, ProcessDefinition> {
  if (processes.has(WEBHOOK_PROCESS))
    throw new StartupError(`the process name ${WEBHOOK_PROCESS} is that of a built-in process`)
  if (receivers === null) return new Map(processes)
  const post = createWebhookPost({ ...timing, proxyFor })
  const process = createWebhookProcess({ receivers: receivers.current, post, now, random, timing })
  return new Map([...processes, [process.name, process]])
}

export interface WebhooksDeps extends WebhookStarterDeps {
  readonly source: TransactionSource
  readonly bus: MessageBus
  readonly receivers: OpenedReceivers
  readonly owner: string
  readonly retryStore: StoreRetry
}

/** Stores the webhooks of transitions and credential events, and starts the runs that deliver the webhooks. */
export async function startWebhooks(deps: WebhooksDeps): Promise<WebhookStarter> {
  const { source, bus, receivers, owner, retryStore } = deps
  source.announce((run) => webhooksOfTransition(receivers.current(), run))
  await using stack = new AsyncDisposableStack()
  const starter = stack.use(startWebhookRuns(deps))
  const shutdown = new AbortController()
  const consumer = await onCredentialEvent(bus, `${owner} webhooks`, async (kind, event) => {
    const webhooks = webhooksOfCredential(receivers.current(), kind, event)
    const stored = await retryStore(() => source.addWebhooks(webhooks), shutdown.signal)
    starter.hint()
    return stored !== ABORTED
  })
  stack.defer(async () => {
    shutdown.abort()
    await consumer.cancel()
  })
  const owned = stack.move()
  return { ...starter, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}

/**
 * Calls `onEvent` for each credential event to which receivers can subscribe, one event after another. Only one replica
 * consumes these events at a time, so the events of a company stay in order. If `onEvent` resolves with false, the
 * event is delivered again.
 */
async function onCredentialEvent(
  bus: MessageBus,
  tag: string,
  onEvent: (kind: CredentialEventKind, event: CredentialEvent) => Promise<boolean>,
): Promise<Consumer> {
  await bus.declare(webhooksTopology)
  return bus.consume(WEBHOOKS_QUEUE, { prefetch: 1, tag }, async (delivery) => {
    const { routingKey } = delivery
    const event = parseMessageAs(CredentialEvent, delivery.content)
    const kind = credentialEventKind(routingKey)
    if (event === null || kind === null || misaddressed(delivery, routingKey) !== null)
      return 'reject'
    return (await onEvent(kind, event)) ? 'ack' : 'requeue'
  })
}
