import type { Consumer } from '@integration-host/shared/messaging/message-bus'
import type { Logger } from '@integration-host/shared/observability/logger'
import { createPendingWork } from '@integration-host/shared/process/pending-work'

/** The method of a queue port that consumes the queue of a process. */
export interface ProcessQueue<Message> {
  /** Consumes the queue of a process until the consumer is cancelled or rejected by the broker. */
  consume(
    process: string,
    handlers: {
      readonly handle: (message: Message) => Promise<'ack' | 'requeue'>
      /** Called if the broker rejects or ends the consumer, which is then cancelled. */
      readonly onRejected: (reason: string) => void
    },
  ): Consumer
}

export interface IntakeConsumersDeps<Message> {
  readonly queue: ProcessQueue<Message>
  /** The kind of message for log entries, for example `start message`. */
  readonly kind: string
  /** The pattern of the queue names for log entries, for example `start.*`. */
  readonly queues: string
  readonly log: Logger
}

/** The consumers of the queues of one kind: at most one for each process. Disposal waits for the messages in flight. */
export interface IntakeConsumers<Message> extends AsyncDisposable {
  has(process: string): boolean
  /** Returns the names of the processes whose queue is consumed. */
  names(): readonly string[]
  start(process: string, handle: (message: Message) => Promise<'ack' | 'requeue'>): void
  stop(process: string): void
}

export function createIntakeConsumers<Message>(
  deps: IntakeConsumersDeps<Message>,
): IntakeConsumers<Message> {
  const { queue, kind, queues, log } = deps
  const consumers = new Map<string, Consumer>()
  const cancelling = createPendingWork()
  /** For each process, the last reason for which the broker rejected the consumer. A reason is logged only once. */
  const rejections = new Map<string, string>()

  function stop(process: string): void {
    const consumer = consumers.get(process)
    if (consumer === undefined) return
    consumers.delete(process)
    void cancelling.add(consumer.cancel())
  }

  return {
    has: (process) => consumers.has(process),
    names: () => [...consumers.keys()],
    stop,
    start(process, handle) {
      const consumer = queue.consume(process, {
        handle,
        onRejected(reason) {
          if (consumers.get(process) === consumer) consumers.delete(process)
          if (rejections.get(process) === reason) return
          rejections.set(process, reason)
          log.warn(
            {
              process,
              reason,
              remedy: `let the account of the coordinator read the queues ${queues} (docs/rabbitmq.md)`,
            },
            `consuming the ${kind}s failed`,
          )
        },
      })
      consumers.set(process, consumer)
    },
    async [Symbol.asyncDispose]() {
      for (const process of consumers.keys()) stop(process)
      await cancelling.ended()
    },
  }
}
