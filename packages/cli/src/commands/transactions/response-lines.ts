/** Formats the stored response of a step for a terminal: first the provider's error messages, then the body. */
import { parseJson } from '@integration-host/shared/json'
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
  providerErrors(body).map(
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

interface ProviderError {
  readonly code: string
  readonly message: string
  readonly detail: string
}

/** Returns the errors in a body, which is `{"Fault":{"Error":[…]}}`, its lower-case form, or XML. */
function providerErrors(body: string): ProviderError[] {
  const text = body.trimStart()
  const errors = text.startsWith('<') ? errorsOfXml(text) : errorsOfJson(text)
  return errors
    .filter(({ message, detail }) => message !== '' || detail !== '')
    .slice(0, MAX_ERRORS)
}

function errorsOfJson(text: string): ProviderError[] {
  const errors = memberOf(memberOf(parseJson(text), 'fault'), 'error')
  return (Array.isArray(errors) ? errors : [errors]).map((error: unknown) => ({
    code: textOf(memberOf(error, 'code')),
    message: textOf(memberOf(error, 'message')),
    detail: textOf(memberOf(error, 'detail')),
  }))
}

function errorsOfXml(text: string): ProviderError[] {
  const start = text.slice(0, 8_192)
  if (!/<Fault[\s>]/.test(start)) return []
  return start
    .split(/<Error\b/)
    .slice(1)
    .map((error) => ({
      code: /^[^>]{0,200}?\scode\s*=\s*["'](\d{1,9})["']/.exec(error)?.[1] ?? '',
      message: unescaped(/<Message>([^<]*)/.exec(error)?.[1]),
      detail: unescaped(/<Detail>([^<]*)/.exec(error)?.[1]),
    }))
}

const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', apos: "'" }
const unescaped = (text = ''): string =>
  text
    .trim()
    .replace(/&(lt|gt|quot|apos);/g, (_, name: string) => ENTITIES[name] ?? '')
    .replaceAll('&amp;', '&')

/** Returns the member whose name in lower case is `name`; for `fault` this is `Fault` or `fault`. */
function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined
  return Object.entries(value).find(([key]) => key.toLowerCase() === name)?.[1]
}

const textOf = (value: unknown): string =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : ''
