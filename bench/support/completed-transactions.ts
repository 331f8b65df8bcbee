/** Yields the id of each completed transaction in the event stream of a coordinator (`GET /events`). */
export async function* completedTransactions(
  stream: ReadableStream<Uint8Array> | null,
): AsyncGenerator<string> {
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of stream ?? []) {
    const lines = (text + decoder.decode(chunk, { stream: true })).split('\n')
    text = lines.pop() ?? ''
    for (const line of lines) {
      if (!line.startsWith('data: {')) continue
      const event = JSON.parse(line.slice('data: '.length)) as {
        TransactionID: string
        Status: string
      }
      if (event.Status === 'Completed') yield event.TransactionID
    }
  }
}
