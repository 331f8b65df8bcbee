import { completedTransactions } from '../support/completed-transactions.ts'
import { Completions } from './engine.ts'

/**
 * Reads the event stream of a server until `signal` is aborted. Resolves when the stream is established, with an object
 * on which callers wait for the completion of a transaction.
 */
export async function watchCompletions(
  url: string,
  signal: AbortSignal,
  headers: Readonly<Record<string, string>> = {},
): Promise<Completions> {
  const completions = new Completions()
  const response = await fetch(`${url}/events`, { headers, signal })
  void (async () => {
    for await (const id of completedTransactions(response.body)) completions.completed(id)
  })().catch((error: unknown) => {
    if (!signal.aborted) throw error
  })
  return completions
}
