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
  const fields = new Map<string, string>()
  const data: string[] = []
  for (const line of block) {
    const colon = line.indexOf(':')
    const name = colon === -1 ? line : line.slice(0, colon)
    const value = colon === -1 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1))
    if (name === 'data') data.push(value)
    else if (name !== '') fields.set(name, value)
  }
  if (data.length === 0) return null
  return {
    name: fields.get('event') ?? 'message',
    id: fields.get('id') ?? null,
    data: data.join('\n'),
  }
}
