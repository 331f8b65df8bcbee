const MAX_BYTES = 8 * 1_048_576

/**
 * Reads the body of a response as text.
 *
 * @throws {Error} if the body has more than 8 MiB, or ends early.
 */
export async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = []
  let length = 0
  if (response.body === null) return ''
  for await (const chunk of response.body as ReadableStream<Uint8Array>) {
    length += chunk.length
    if (length > MAX_BYTES) throw new Error('the response is too large')
    chunks.push(chunk)
  }
  return new TextDecoder().decode(Buffer.concat(chunks))
}
