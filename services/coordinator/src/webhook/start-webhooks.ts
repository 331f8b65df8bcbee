import type { TransactionEvent } from '@integration-host/shared/contracts/transaction-event'
import { WEBHOOK_PROCESS } from '@integration-host/shared/contracts/webhook'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Run } from '../transaction/run.ts'
import { isOver } from '../transaction/status.ts'
import type { TransactionSource, WebhookBacklog } from '../transaction/transaction-source.ts'
import { startPolling } from '../worker/polling.ts'

export interface WebhookStarterDeps {
  readonly source: Pick<TransactionSource, 'startWebhooks' | 'webhookBacklog'>
  /** Publishes the first messages of new runs. */
  readonly publish: (runs: readonly Run[]) => void
  readonly onBacklog: (backlog: readonly WebhookBacklog[]) => void
  readonly log: Logger
  readonly random: () => number
  /** `LOCAL_PULL_SECONDS`, in milliseconds. */
  readonly intervalMs: number
}

export interface WebhookStarter extends AsyncDisposable {
  /** Called for each transition of this replica. */
  onTransition(event: TransactionEvent): void
  /** Looks for webhooks to start soon, because one was stored or the run of one is over. */
  hint(): void
}

const BATCH = 500
/** Milliseconds from a hint to the poll, so that one poll finds the webhooks of many transitions. */
const HINT_MS = 10

/**
 * Queues the runs of webhooks when their turn has come. It polls at intervals as well, because a hint is lost when a
 * replica stops right after it has committed a transition.
 */
export function startWebhookRuns(deps: WebhookStarterDeps): WebhookStarter {
  const { source, log, random, intervalMs } = deps
  /** Its abort ends the pause before the next poll. */
  let wake = new AbortController()
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
      // If the count fails, for example because it exceeds the time limit of a statement, it must not be repeated soon.
      try {
        deps.onBacklog(await source.webhookBacklog())
      } catch (error) {
        log.warn({ err: error }, 'webhooks that wait could not be counted')
      }
    }
    return true
  }

  const polling = startPolling({
    task: 'start of webhooks',
    intervalMs,
    log,
    random,
    poll,
    wakeUp() {
      wake = new AbortController()
      return wake.signal
    },
  })
  const hint = (): void => {
    hinted ??= setTimeout(() => {
      hinted = null
      wake.abort()
    }, HINT_MS).unref()
  }
  return {
    hint,
    onTransition({ Process, Status }) {
      // A step that waits for its next attempt may be in doubt. A webhook that does so starts no other one.
      if (isOver(Status) || (Status === 'Retrying' && Process !== WEBHOOK_PROCESS)) hint()
    },
    [Symbol.asyncDispose]: () => polling[Symbol.asyncDispose](),
  }
}
