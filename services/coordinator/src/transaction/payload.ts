/**
 * Payloads are the initial data of a run, and the response bodies and data of its items. With `PAYLOAD_KEYS` a source
 * stores them sealed: encrypted, authenticated, and bound to their place.
 *
 *   in a JSON column   {"$sealed": "<ReplayID>:<envelope>"}
 *   in a text column   $sealed:<ReplayID>:<envelope>
 *
 * P1  The envelope is bound to process, transaction, step and column, and to the run for which it was sealed. A later
 *     run of the same transaction may contain it as well, because a replay copies initial data and items. An earlier run
 *     may not.
 * P2  A value in plain text is read as it is: the row is older than the keys, or another program has inserted it.
 * P3  Data of a client that looks like a sealed value is stored with one more `$`, which is removed when it is read.
 *     So it is never mistaken for a sealed value.
 * P4  A missing value (`null`) is stored as it is.
 */
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import { parseJson } from '@integration-host/shared/json'
import type { Json } from '../process/json-normalization.ts'
import type { RunKey } from './run.ts'

export const payloadColumns = ['InitialData', 'ResponseBody', 'Data'] as const
export type PayloadColumn = (typeof payloadColumns)[number]

/** The place of a payload in the tables. */
export interface PayloadPlace extends RunKey {
  readonly column: PayloadColumn
  /** `null` for initial data. */
  readonly step: string | null
}

export interface StoredPayload extends PayloadPlace {
  /** The content of the column, which is not null. */
  readonly stored: Json
}

export interface PayloadPage {
  readonly after: RunKey | null
  readonly limit: number
}

export interface OutdatedPayloads {
  readonly payloads: readonly StoredPayload[]
  /** The position behind which the next page begins; `null` after the last page. */
  readonly next: RunKey | null
}

/** The part of the transaction source with which payloads are sealed anew when the keys have changed. */
export interface PayloadStore {
  /**
   * Returns the payloads of the next `limit` runs that are in plain text or sealed with another key than this one. The
   * runs are ordered by their keys.
   */
  outdatedPayloads(keyId: string, page: PayloadPage): Promise<OutdatedPayloads>
  /** Counts what {@link outdatedPayloads} returns. */
  countOutdatedPayloads(
    keyId: string,
    page: PayloadPage,
  ): Promise<{ readonly count: number; readonly next: RunKey | null }>
  /** Replaces each payload, unless it has changed since it was read. Returns the number of those replaced. */
  replacePayloads(payloads: readonly (StoredPayload & { readonly by: Json })[]): Promise<number>
  /**
   * Begins or continues a pass over all payloads. Returns `null` if another owner has begun it, or if the last pass
   * with this key was completed less than `everyMs` ago. The right lasts as long as a lease.
   */
  beginResealing(owner: string, keyId: string, everyMs: number): Promise<ResealingProgress | null>
  /** Stores the progress and extends the right; false if another owner has it now. */
  saveResealing(owner: string, progress: ResealingProgress): Promise<boolean>
  /** Returns the progress of the last pass; `null` if there was none. */
  resealing(): Promise<ResealingProgress | null>
}

export interface ResealingProgress {
  /** The key with which the pass seals. */
  readonly keyId: string
  /** The position of the pass; `null` at its begin. */
  readonly after: RunKey | null
  /** How many payloads are in plain text or sealed with another key; `null` before they are counted. */
  readonly outdated: number | null
  readonly isDone: boolean
}

export interface Payloads {
  /** Returns the value as it is stored. */
  sealJson(value: Json, place: PayloadPlace): Json
  sealText(text: string | null, place: PayloadPlace): string | null
  /** Returns a stored value as its client wrote it. @throws {DecryptionError} if it is sealed and cannot be opened. */
  openJson(stored: Json, place: PayloadPlace): Json
  openText(stored: string | null, place: PayloadPlace): string | null
}

const ENVELOPE = String.raw`\d{1,10}:1\.([A-Za-z0-9_-]{1,32})\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22}`
/** The beginning of a sealed value, or of one that only looks like it and therefore has more than one `$`. */
const LOOKS_SEALED = new RegExp(String.raw`^\$+sealed:${ENVELOPE}`)
const MEMBER = /^\$+sealed$/

/** @param keys `null`: values are stored in plain text, and sealed ones cannot be opened. */
export function createPayloads(keys: KeyRing | null): Payloads {
  const seal = (plaintext: string, place: PayloadPlace): string =>
    `${place.ReplayID}:${(keys as KeyRing).seal(plaintext, placeOf(place, place.ReplayID))}`

  function open(sealed: string, place: PayloadPlace): string {
    if (keys === null) throw new DecryptionError('PAYLOAD_KEYS is not set')
    const colon = sealed.indexOf(':')
    const replayId = Number(sealed.slice(0, colon))
    if (replayId > place.ReplayID) throw new DecryptionError('the payload belongs to a later run')
    return keys.open(sealed.slice(colon + 1), placeOf(place, replayId))
  }

  return {
    sealJson(value, place) {
      if (value === null) return null
      if (keys !== null) return { $sealed: seal(JSON.stringify(value), place) }
      const text = sealedTextOf(value)
      return text === null ? value : memberOf(`$${text}`)
    },
    sealText(text, place) {
      if (text === null) return null
      if (keys !== null) return `$sealed:${seal(text, place)}`
      return LOOKS_SEALED.test(text) ? `$${text}` : text
    },
    openJson(stored, place) {
      const text = sealedTextOf(stored)
      if (text === null) return stored
      if (text.startsWith('$$')) return memberOf(text.slice(1))
      return parseJson(open(text.slice(PREFIX.length), place)) as Json
    },
    openText(stored, place) {
      if (stored === null || !LOOKS_SEALED.test(stored)) return stored
      return stored.startsWith('$$') ? stored.slice(1) : open(stored.slice(PREFIX.length), place)
    },
  }
}

const PREFIX = '$sealed:'

/** Returns a JSON value that looks sealed in the form of a text column; `null` for every other value. */
function sealedTextOf(value: Json): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null
  const [name, ...others] = Object.keys(value)
  if (name === undefined || others.length > 0 || !MEMBER.test(name)) return null
  const content = (value as Readonly<Record<string, Json>>)[name]
  const text = `${name}:${typeof content === 'string' ? content : ''}`
  return LOOKS_SEALED.test(text) ? text : null
}

/** The inverse of {@link sealedTextOf}. */
function memberOf(text: string): Json {
  const colon = text.indexOf(':')
  return { [text.slice(0, colon)]: text.slice(colon + 1) }
}

const placeOf = ({ Process, TransactionID, column, step }: PayloadPlace, version: number) => ({
  name: JSON.stringify([Process, TransactionID]),
  field: step === null ? column : `${column} ${step}`,
  version,
})

/** Returns the id of the key with which a stored payload is sealed; `null` if it is in plain text. */
export function sealedWith({ column, stored }: StoredPayload): string | null {
  const text = column === 'ResponseBody' ? (stored as string) : sealedTextOf(stored)
  return text?.startsWith(PREFIX) ? (LOOKS_SEALED.exec(text)?.[1] ?? null) : null
}
