/** Reads the body of a response within a limit: as text, by lines, or as server-sent events. */
const MAX_BYTES = 8 * 1_048_576

/**
 * Reads the body of a response as text.
 *
 * @throws {RangeError} if the body has more than `maxBytes` (8 MiB by default).
 */
export async function boundedText(
  { body }: Pick<Response, 'body'>,
  maxBytes = MAX_BYTES,
): Promise<string> {
  if (body === null) return ''
  const decoder = new TextDecoder()
  // A reader is used, because not every browser can iterate over a stream.
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader()
  let text = ''
  let length = 0
  for (;;) {
    const { done, value } = await reader.read()
    length += value?.length ?? 0
    if (length > maxBytes) {
      await reader.cancel().catch(() => {})
      throw new RangeError(`the response is larger than ${maxBytes / 1_048_576} MiB`)
    }
    text += decoder.decode(value, { stream: !done })
    if (done) return text
  }
}

/**
 * Yields the lines of a body of text, with the arrival of each chunk all lines that it completes. The last line may lack
 * its line feed. Every character is looked at once, even if a line arrives in many chunks. The body is cancelled when the
 * caller ends its iteration.
 *
 * @throws {Error} if a line has more than `maxCharacters`.
 */
export async function* readLines(
  { body }: Pick<Response, 'body'>,
  maxCharacters: number,
): AsyncGenerator<readonly string[], void, void> {
  if (body === null) return
  const decoder = new TextDecoder()
  // A reader is used, because not every browser can iterate over a stream.
  const reader: ReadableStreamDefaultReader<Uint8Array> = body.getReader()
  /** The chunks of the line that is not complete yet. They are joined once, because joining copies them. */
  let parts: string[] = []
  let length = 0
  try {
    for (;;) {
      const { done, value } = await reader.read()
      const text = decoder.decode(value, { stream: !done })
      length += text.length
      const lines = text.split('\n')
      const rest = lines.pop() ?? ''
      if (lines.length > 0) {
        lines[0] = parts.join('') + (lines[0] ?? '')
        length = rest.length
        parts = []
        yield lines
      }
      if (rest !== '') parts.push(rest)
      if (length > maxCharacters) throw new Error('a line of the response is too long')
      if (!done) continue
      if (parts.length > 0) yield [parts.join('')]
      return
    }
  } finally {
    await reader.cancel().catch(() => {}) // cancelling fails if the connection is already lost
  }
}

/** @see https://html.spec.whatwg.org/multipage/server-sent-events.html */
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
