/** Reads server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) from a response body. */

export interface ServerSentEvent {
  /** The name of the event; `message` if the stream does not name the event. */
  readonly name: string
  /** The id of the event; `null` if it has none. */
  readonly id: string | null
  readonly data: string
}

/**
 * Yields the events of the stream. Yields `null` for a block of comments, which only shows that the connection is
 * alive. The stream is cancelled when the caller ends its iteration.
 */
export async function* readEvents({
  body,
}: Pick<Response, 'body'>): AsyncGenerator<ServerSentEvent | null, void, void> {
  if (body === null) return
  const decoder = new TextDecoder()
  // A reader is used, because not every browser can iterate over a stream.
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader()
  let text = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      // Only the new part is searched, because a long event may arrive in many chunks. A blank line may have begun
      // before it.
      const searchedFrom = Math.max(0, text.length - 3)
      text += decoder.decode(value, { stream: true })
      if (!BLANK_LINE.test(text.slice(searchedFrom))) {
        if (text.length > MAX_EVENT_CHARACTERS)
          throw new Error('an event of the stream is too long')
        continue
      }
      const blocks = text.split(BLANK_LINE)
      text = blocks.pop() ?? ''
      for (const block of blocks) yield parseBlock(block)
    }
  } finally {
    await reader.cancel().catch(() => {}) // cancelling fails if the connection is already lost
  }
}

const BLANK_LINE = /\r?\n\r?\n/
const MAX_EVENT_CHARACTERS = 1_048_576

function parseBlock(block: string): ServerSentEvent | null {
  const fields = new Map<string, string>()
  const data: string[] = []
  for (const line of block.split(/\r?\n/)) {
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
