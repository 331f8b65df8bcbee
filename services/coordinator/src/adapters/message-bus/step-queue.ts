import { randomBytes } from 'node:crypto'
import {
  DEAD_EXCHANGE,
  deadQueue,
  delayName,
  delays,
  StepMessage,
  stepQueue,
  stepRoutingKey,
  STEPS_EXCHANGE,
} from '@integration-host/shared/contracts/step-message'
import { ladder, processTopology } from '@integration-host/shared/contracts/topology'
import type { MessageBus, OutgoingMessage } from '@integration-host/shared/message-bus'
import { type SpanDescription, tracing } from '@integration-host/shared/telemetry'
import type { DueStep, StepArrival, StepQueue } from '../../worker/step-queue.ts'
import { traceparentOf } from '../../worker/trace.ts'

/** Enough to recognise a message by; a huge one must not go round once more. */
const MAX_BURIED_BYTES = 65_536

/** Step messages over the bus: one queue per step, so that the console shows where work stands. */
export function createStepQueue(bus: MessageBus, owner: string): StepQueue {
  let isLadderDeclared = false
  return {
    async declare({ name, steps }) {
      const isFirst = !isLadderDeclared
      isLadderDeclared = true
      if (isFirst) await bus.declare(ladder)
      await bus.declare(processTopology(name, steps))
    },

    publish(due, delayMs) {
      if (tracing === undefined)
        return bus.publish(messageOf(due, delayMs, { traceparent: traceparentOf(due) }))
      const traces = tracing
      // Sent again by a pull it begins a trace: which one the first message belonged to is not kept.
      return traces.span(spanOf('publish', 'producer', due.Process, due.step), () =>
        bus.publish(messageOf(due, delayMs, traces.headers())),
      )
    },

    bury: (process, { content, messageId }, reason) =>
      bus.publish({
        exchange: DEAD_EXCHANGE,
        routingKey: process,
        messageId: `dead/${crypto.randomUUID()}`,
        type: 'dead',
        headers: { reason, 'original-message-id': messageId.slice(0, 200) },
        body: {
          Reason: reason,
          Bytes: content.length,
          Content: content.toString('utf8', 0, MAX_BURIED_BYTES),
        },
        mandatory: true,
      }),

    consume: (process, step, prefetch, handle) =>
      bus.consume(
        stepQueue(process, step),
        { prefetch, tag: `${owner} ${process}.${step}` },
        ({ content, messageId, headers }) => {
          const arrival = arrivalOf(content, messageId)
          if (tracing === undefined) return handle(arrival)
          const about = { ...spanOf('process', 'consumer', process, step), from: headers }
          return tracing.span(about, () => handle(arrival))
        },
      ),

    async waiting(process, step) {
      return (await bus.depth(stepQueue(process, step)))?.ready ?? null
    },
    async consumers(process, step) {
      return (await bus.depth(stepQueue(process, step)))?.consumers ?? null
    },
    async buried(process) {
      return (await bus.depth(deadQueue(process)))?.ready ?? null
    },
  }
}

/** What tells the messages of this process from those of others, and from one another. */
const MESSAGES = randomBytes(2).toString('hex')
let messages = 0

function messageOf(
  { step, version, ...run }: DueStep,
  delayMs: number,
  headers: OutgoingMessage['headers'] & object,
): OutgoingMessage {
  const body: StepMessage = { v: 1, ...run, Step: step, Version: version }
  const rung = rungFor(delayMs)
  return {
    exchange: rung === null ? STEPS_EXCHANGE : delayName(rung),
    routingKey: stepRoutingKey(run.Process, step),
    // Unique: a re-published message is another one, and confirms are told apart by it. Cut, because AMQP
    // takes 255 bytes and a character may have three.
    messageId: `${run.Process}/${run.TransactionID.slice(0, 28)}/${run.ReplayID}/${step}/${version}/${MESSAGES}${(messages += 1).toString(36)}`,
    type: 'step',
    correlationId: run.TransactionID.slice(0, 80),
    headers,
    body,
    mandatory: true,
  }
}

const spanOf = (
  operation: 'publish' | 'process',
  kind: SpanDescription['kind'],
  process: string,
  step: string,
): SpanDescription => ({
  name: `${operation} ${stepQueue(process, step)}`,
  kind,
  attributes: {
    'messaging.system': 'rabbitmq',
    'messaging.operation.name': operation,
    'messaging.destination.name': stepQueue(process, step),
  },
})

/** The longest delay that is not too long, so that a step is never late by more than the shortest. */
function rungFor(delayMs: number): string | null {
  if (delayMs <= 0) return null
  return (delays.findLast(({ ms }) => ms <= delayMs) ?? delays[0]).name
}

function arrivalOf(content: Buffer, messageId: string): StepArrival {
  try {
    const { Step, Version, v: _, ...run } = StepMessage.parse(JSON.parse(content.toString('utf8')))
    return { due: { ...run, step: Step, version: Version }, content, messageId }
  } catch {
    return { due: null, content, messageId }
  }
}
