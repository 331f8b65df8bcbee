import { z } from 'zod'
import { ReplayID, TransactionID } from './transaction.ts'

/** Direct exchange of step messages; the routing key is `<Process>.<Step>`. */
export const STEPS_EXCHANGE = 'integration.steps'
/** Direct exchange of dead letters; the routing key is the process. */
export const DEAD_EXCHANGE = 'integration.dead'

/** A name of a process or a step. It becomes part of a queue name, so only plain characters are allowed. */
export const StepName = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/)

/**
 * Says that a step is due. The message carries no business data: the row is authoritative, and `Version` ties the
 * message to one state of that row, so that a duplicate or late message is recognised and discarded.
 */
export const StepMessage = z.strictObject({
  v: z.literal(1),
  Process: StepName,
  TransactionID,
  ReplayID,
  Step: StepName,
  Version: z.int().min(0).max(2_147_483_647),
})
export type StepMessage = z.output<typeof StepMessage>

/** `steps.OrderProcess.order`: one queue per step, so that the management page shows which step the work waits at. */
export const stepQueue = (process: string, step: string): string => `steps.${process}.${step}`
export const stepRoutingKey = (process: string, step: string): string => `${process}.${step}`
/** `dead.OrderProcess`: holds the dead letters of a process, with the reason in a header. */
export const deadQueue = (process: string): string => `dead.${process}`

/** The delays of retries: one queue per delay, because RabbitMQ expires messages at the head of a queue only. */
export const delays = [
  { name: '1s', ms: 1_000 },
  { name: '5s', ms: 5_000 },
  { name: '15s', ms: 15_000 },
  { name: '1m', ms: 60_000 },
  { name: '5m', ms: 300_000 },
  { name: '15m', ms: 900_000 },
  { name: '1h', ms: 3_600_000 },
] as const
/** Fanout exchange and queue of one delay. */
export const delayName = (name: string): string => `integration.delay.${name}`
