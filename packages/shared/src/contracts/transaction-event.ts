import { z } from 'zod'
import { headerStatuses, ReplayID, TransactionID } from './transaction.ts'

/**
 * Topic exchange that publishes transaction events to other systems; the routing key is
 * `transaction.<Process>.<status>`.
 */
export const TRANSACTIONS_EXCHANGE = 'integration.transactions'
/**
 * Fanout exchange that sends transitions to every replica of the coordinator. One message contains several transitions.
 */
export const COORDINATORS_EXCHANGE = 'integration.coordinators'

/**
 * One transition of a transaction's header. It contains only identifiers and the status, because business data stays in
 * the database.
 */
export const TransactionEvent = z.object({
  // The name must be well-formed, like the transaction's identifier: the event id is derived from both by
  // percent-encoding, which throws for an unpaired surrogate.
  Process: z.string().refine((name) => name.isWellFormed(), 'must be well-formed Unicode'),
  TransactionID,
  ReplayID,
  Status: z.enum(headerStatuses),
  StepName: z.string(),
  Version: z.int().nonnegative(),
  At: z.iso.datetime(),
})
export type TransactionEvent = z.output<typeof TransactionEvent>

export const transactionRoutingKey = (event: TransactionEvent): string =>
  `transaction.${event.Process}.${event.Status.toLowerCase()}`
