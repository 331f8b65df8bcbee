import { TransactionEvent } from '@integration-host/shared/contracts/events'

/** Returns the event of a run that is at its first step, with the given members. */
export const transactionEvent = (
  members: Partial<TransactionEvent> & Pick<TransactionEvent, 'TransactionID' | 'At'>,
): TransactionEvent =>
  TransactionEvent.parse({
    Process: 'Orders',
    ReplayID: 0,
    Status: 'Running',
    StepName: 'order',
    Version: 1,
    ...members,
  })
