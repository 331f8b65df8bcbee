/** Creates and connects the parts that deliver webhooks. Without `WEBHOOKS_FILE`, none of them runs. */
import type { ProxyFor } from '@integration-host/shared/http/forward-proxy/forward-proxy'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { StartupError } from '@integration-host/shared/process/lifecycle'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/webhook'
import type { OpenedReceivers } from './adapters/files/webhooks-file.ts'
import { createWebhookPost, type WebhookPostOptions } from './adapters/http/webhook-post.ts'
import { onCredentialEvent } from './adapters/message-bus/webhook-events.ts'
import type { ProcessDefinition } from './process/definition.ts'
import type { TransactionSource } from './transaction/transaction-source.ts'
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
