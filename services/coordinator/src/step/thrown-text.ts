/**
 * Returns the name and the message of a thrown value as text. A program can set both to values that are not strings.
 */
export function thrownText(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : 'not an error'
  } catch {
    return 'an error whose name or message is not a text'
  }
}
