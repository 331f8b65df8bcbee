import { z } from 'zod'
import { ReplayID, TransactionID } from './transaction.ts'

/** Direct exchange of step messages; the routing key is `<Process>.<Step>`. */
export const STEPS_EXCHANGE = 'integration.steps'
/** Direct exchange of dead letters; the routing key is the name of the business process. */
export const DEAD_EXCHANGE = 'integration.dead'

/**
 * The name of a business process or of a step. The name becomes a part of queue names, so only plain characters are
 * allowed.
 */
export const StepName = z.string().regex(/^[A-Za-z][A-Za-z0-9_-]{0,63}$/)

/**
 * The message that a step is due. It contains no business data, because the worker reads this data from the database
 * row. `Version` identifies one state of this row, so that the coordinator can recognise and discard a duplicate or
 * late message.
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

/**
 * Returns the name of a step's queue, such as `steps.OrderProcess.order`. Each step has its own queue, so that
 * RabbitMQ's management page shows how many transactions wait at each step.
 */
export const stepQueue = (process: string, step: string): string => `steps.${process}.${step}`
/**
 * The lanes of a business process: queues beside those of its steps, each of which takes the messages of all steps. The
 * busy lanes, such as `steps.OrderProcess.busy`, are for companies that have more messages than a coordinator processes at
 * once, and `steps.OrderProcess.high` is for runs of high priority (`services/coordinator/src/worker/lanes.ts`). A process
 * with a place of the name `busy` has no busy lanes, and one with a place `high` no lane for priorities.
 */
export const BUSY_LANES = ['busy', 'busy.1', 'busy.2', 'busy.3'] as const
export const HIGH_LANE = 'high'
export const LANES: readonly string[] = [...BUSY_LANES, HIGH_LANE]
export const busyLanesOf = (steps: readonly string[]): readonly string[] =>
  steps.includes(BUSY_LANES[0]) ? [] : BUSY_LANES
export const hasHighLane = (steps: readonly string[]): boolean => !steps.includes(HIGH_LANE)
export const lanesOf = (steps: readonly string[]): readonly string[] => [
  ...busyLanesOf(steps),
  ...(hasHighLane(steps) ? [HIGH_LANE] : []),
]
export const stepRoutingKey = (process: string, step: string): string => `${process}.${step}`
/**
 * Returns the name of the queue for the dead letters of a business process, such as `dead.OrderProcess`. A header of
 * each dead letter contains the reason.
 */
export const deadQueue = (process: string): string => `dead.${process}`

/**
 * The delays before a retry. Each delay has its own queue, because RabbitMQ expires messages only at the head of a
 * queue.
 */
export const delays = [
  { name: '1s', ms: 1_000 },
  { name: '5s', ms: 5_000 },
  { name: '15s', ms: 15_000 },
  { name: '1m', ms: 60_000 },
  { name: '5m', ms: 300_000 },
  { name: '15m', ms: 900_000 },
  { name: '1h', ms: 3_600_000 },
] as const
/** Returns the name that the fanout exchange and the queue for one delay have in common. */
export const delayName = (name: string): string => `integration.delay.${name}`
