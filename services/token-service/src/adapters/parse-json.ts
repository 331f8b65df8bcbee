/** Parses JSON; `undefined` if the text is not JSON, so that a schema rejects it. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
