/** Formats the stored response of a step for a terminal: first the provider's error messages, then the body. */
import { intuitErrors } from '@integration-host/shared/provider-profile/intuit'
import { plain } from '../../terminal.ts'

/** The number of characters of a text that are shown without `--full`. */
const SHOWN = 1_024
/** The maximum number of errors that are shown separately. The body, which is shown as well, contains all of them. */
const MAX_ERRORS = 5

/**
 * Returns the response of a step as lines: `Fault.Error[].Message` and `Detail` in Intuit's formats, and the body.
 * Long texts are truncated unless `isFull` is set.
 */
export const responseLines = (body: string, isFull: boolean): string[] => [
  ...providerErrorLines(body).map((line) => shortened(line, isFull)),
  shortened(body, isFull),
]

/** Returns a line for each error of the provider in a body; none if the body is not an error in Intuit's formats. */
export const providerErrorLines = (body: string): string[] =>
  (intuitErrors(body) ?? [])
    .filter(({ message, detail }) => message !== '' || detail !== '')
    .slice(0, MAX_ERRORS)
    .map(
      ({ code, message, detail }) =>
        `${code === '' ? 'error' : `error ${code}`}: ${[message, detail].filter(Boolean).join(': ')}`,
    )

/** Returns a text on one line. A long text is truncated unless `isFull` is set. */
export function shortened(text: string, isFull: boolean): string {
  const line = plain(isFull ? text : text.slice(0, SHOWN).toWellFormed())
  return isFull || text.length <= SHOWN
    ? line
    : `${line}… (${text.length} characters; --full shows all)`
}
