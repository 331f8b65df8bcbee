/** Turns the initial data that a person has typed into the JSON that is sent. */
import { jsonFault, type JsonFault } from './json-text.ts'

/** The coordinator accepts a transaction of at most this many bytes. */
const MAX_BYTES = 262_144

export interface TypedData {
  /** The JSON that is sent; `null` if the text is not JSON and is not to be sent as a JSON string. */
  readonly json: string | null
  /** The place at which the text is not JSON; `null` if the text is JSON or empty. */
  readonly fault: JsonFault | null
  readonly bytes: number
  readonly isTooLong: boolean
}

/**
 * Checks the text of the field for initial data. The coordinator accepts every JSON value, so a text that is not JSON
 * can be queued as a JSON string (`asText`). If the field is empty, the data is the id of the transaction, as on the
 * command line.
 */
export function typedData(text: string, id: string, asText: boolean): TypedData {
  const isEmpty = text.trim() === ''
  const fault = isEmpty ? null : jsonFault(text)
  const json = isEmpty
    ? JSON.stringify(id)
    : fault === null
      ? text
      : asText
        ? JSON.stringify(text)
        : null
  const bytes = new TextEncoder().encode(json ?? text).length
  return { json, fault, bytes, isTooLong: bytes > MAX_BYTES }
}

/** Returns the id that is proposed for a copy. Like every id, it has at most 128 characters. */
export function copyId(id: string): string {
  const kept = id.slice(0, 123)
  return `${kept.isWellFormed() ? kept : kept.slice(0, -1)}-copy`
}
