import { batched } from '@integration-host/shared/batching'
import type { QueueTransaction } from '@integration-host/shared/contracts/transaction'
import { hasCode } from '@integration-host/shared/errors'
import type { Actor } from '../run/action.ts'
import type { RunActions, QueueOutcome } from './run-actions.ts'

export interface StartRequest {
  readonly transaction: QueueTransaction
  /** The actor in the action log; `undefined` if the queued transaction is not recorded as an action. */
  readonly by: Actor | undefined
}

/** The maximum number of transactions in a statement. 100 transactions of the maximum size have 25 MiB. */
const MAX_BATCH = 100

/**
 * Returns a function that queues one transaction of a process. Transactions that wait at the same time and have the
 * same actor are queued by one statement, because a statement for each transaction would be several times slower.
 *
 * If the store is unavailable, all transactions of the batch fail. After any other error, each transaction is queued
 * separately, so that only the transaction that caused the error fails.
 */
export function createStartBatches(
  process: string,
  queue: RunActions['queue'],
): (request: StartRequest) => Promise<QueueOutcome> {
  const inBatch = batched<StartRequest, QueueOutcome>(
    async (requests) => {
      const results = new Map<StartRequest, QueueOutcome>()
      for (const [, ofActor] of Map.groupBy(requests, ({ by }) => by?.keyId)) {
        const transactions = ofActor.map(({ transaction }) => transaction)
        const outcomes = await queue(process, transactions, ofActor[0]?.by)
        for (const [index, request] of ofActor.entries())
          results.set(request, outcomes[index] as QueueOutcome) // the batch has one outcome for each transaction
      }
      return requests.map((request) => results.get(request) as QueueOutcome)
    },
    { maxSize: MAX_BATCH, retries: false },
  )
  return async (request) => {
    try {
      return await inBatch(request)
    } catch (error) {
      if (hasCode(error, 'store_unavailable')) throw error
      const [outcome] = await queue(process, [request.transaction], request.by)
      return outcome as QueueOutcome
    }
  }
}
