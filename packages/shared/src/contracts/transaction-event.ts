import { z } from 'zod'
import { headerStatuses, ReplayID, TransactionID } from './transaction.ts'

/** Topic exchange for other systems; the routing key is `transaction.<Process>.<status>`. */
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
  Process: z.string(),
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
