import { z } from 'zod'
import { problemsOf } from '../run/input-check.ts'

/**
 * Returns the name and the message of a thrown value as text. A program can set both to values that are not strings.
 *
 * @param root the name of the checked value; with it, the error of a schema becomes the paths and messages of its issues
 */
export function thrownText(error: unknown, root: string | null = null): string {
  try {
    if (root !== null && error instanceof z.core.$ZodError)
      return problemsOf(root, error.issues).join('; ')
    return error instanceof Error ? `${error.name}: ${error.message}` : 'not an error'
  } catch {
    return 'an error whose name or message is not a text'
  }
}
