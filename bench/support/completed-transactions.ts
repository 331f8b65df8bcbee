import { readEvents } from '@integration-host/shared/http/response-body'

/** Yields the id of each completed transaction in the event stream of a coordinator (`GET /events`). */
export async function* completedTransactions(body: Response['body']): AsyncGenerator<string> {
  for await (const event of readEvents({ body })) {
    if (event?.name !== 'transaction') continue
    const { TransactionID, Status } = JSON.parse(event.data) as Record<string, string>
    if (Status === 'Completed' && TransactionID !== undefined) yield TransactionID
  }
}
