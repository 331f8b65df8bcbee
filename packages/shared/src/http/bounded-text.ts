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
