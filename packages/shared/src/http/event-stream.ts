/** Reads server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) from a response body. */

import { readLines } from './read-lines.ts'

export interface ServerSentEvent {
  /** The name of the event; `message` if the stream does not name the event. */
  readonly name: string
  /** The id of the event; `null` if it has none. */
  readonly id: string | null
  readonly data: string
}

/** The largest event, in characters of its lines. */
const MAX_EVENT_CHARACTERS = 1_048_576

/**
 * Yields the events of the stream. Yields `null` for a block of comments, which only shows that the connection is
 * alive. The stream is cancelled when the caller ends its iteration.
 *
 * @throws {Error} if an event has more than {@link MAX_EVENT_CHARACTERS}.
 */
export async function* readEvents(
  response: Pick<Response, 'body'>,
): AsyncGenerator<ServerSentEvent | null, void, void> {
  let block: string[] = []
  let length = 0
  for await (const lines of readLines(response, MAX_EVENT_CHARACTERS))
    for (const received of lines) {
      const line = received.endsWith('\r') ? received.slice(0, -1) : received
      if (line !== '') {
        block.push(line)
        length += line.length
        if (length > MAX_EVENT_CHARACTERS) throw new Error('an event of the stream is too long')
      } else if (block.length > 0) {
        yield eventOf(block)
        block = []
        length = 0
      }
    }
}

function eventOf(block: readonly string[]): ServerSentEvent | null {
  let name = 'message'
  let id: string | null = null
  const data: string[] = []
  for (const line of block) {
    const [, field = line, value = ''] = /^([^:]*): ?(.*)$/s.exec(line) ?? []
    if (field === 'data') data.push(value)
    else if (field === 'event') name = value
    else if (field === 'id') id = value
  }
  return data.length === 0 ? null : { name, id, data: data.join('\n') }
}
