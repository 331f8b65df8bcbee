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
