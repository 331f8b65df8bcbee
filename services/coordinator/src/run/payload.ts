/**
 * Payloads are the initial data of a run, its concurrency key and debounce key, and the response bodies, data, states,
 * reports and questions of its items. With `PAYLOAD_KEYS` a source stores them sealed: encrypted, authenticated, and bound to their place in the
 * tables.
 *
 * The form is `{"$sealed": "<ReplayID>:<envelope>"}` in a JSON column, and `$sealed:<ReplayID>:<envelope>` in a text
 * column.
 *
 * P1  The envelope is bound to process, transaction, step and column, and to the run for which it was sealed. It is
 *     also valid in later runs of the same transaction, because a replay copies initial data and items. It is not valid
 *     in earlier runs.
 * P2  A value in plain text is returned as stored: the row is older than the keys, or another program has inserted it.
 * P3  Data of a client that looks like a sealed value is stored with an additional `$`, which is removed when the data
 *     is read. Such data is therefore never mistaken for a sealed value.
 * P4  A missing value (`null`) is stored as `null`.
 * P5  Concurrency keys and debounce keys are compared by the store. Their envelope is therefore bound only to process
 *     and column, and equal keys have equal envelopes as long as the active key is the same.
 */
import { OWN_TEXT, parseJson } from '@integration-host/shared/json'
import { DecryptionError, type KeyRing } from '@integration-host/shared/secrets/envelope'
import type { Json } from './json-normalization.ts'
import type { RunKey } from './run.ts'

/** A key of a run. `SlotKey` is the concurrency key in the slot of the run. */
export type KeyColumn = 'ConcurrencyKey' | 'DebounceKey' | 'SlotKey'
/** The columns of an item that contain JSON. */
export const itemJsonColumns = ['Data', 'State', 'Report', 'Ask'] as const
export type PayloadColumn =
  | 'InitialData'
  | 'ResponseBody'
  | (typeof itemJsonColumns)[number]
  | KeyColumn

/** The place of a payload in the tables. */
export interface PayloadPlace extends RunKey {
  readonly column: PayloadColumn
  /** The name of the step; `null` for initial data and keys. */
  readonly step: string | null
}

export interface StoredPayload extends PayloadPlace {
  /** The content of the column, which is never null. */
  readonly stored: Json
}

export interface PayloadPage {
  readonly after: RunKey | null
  readonly limit: number
  /** Whether the payloads are only counted. */
  readonly isCount?: boolean
}

export interface OutdatedPayloads {
  readonly count: number
  /** Empty if they are only counted. */
  readonly payloads: readonly StoredPayload[]
  /** The position at which the next page begins; `null` after the last page. */
  readonly next: RunKey | null
}

/** The part of the transaction source with which payloads are encrypted again after the current key has changed. */
export interface PayloadStore {
  /**
   * Reads the next `limit` runs in the order of their keys. Returns the payloads of these runs that are in plain text,
   * or that are sealed with a key other than `keyId`.
   */
  outdatedPayloads(keyId: string, page: PayloadPage): Promise<OutdatedPayloads>
  /** Replaces each payload that has not changed since it was read. Returns the number of replaced payloads. */
  replacePayloads(payloads: readonly (StoredPayload & { readonly by: Json })[]): Promise<number>
}

export interface Payloads {
  /** Returns a value in the form in which the source stores it. */
  sealJson(value: Json, place: PayloadPlace): Json
  sealText(text: string | null, place: PayloadPlace): string | null
  /**
   * Returns a stored value in its original form.
   *
   * @throws {DecryptionError} if the value is sealed and cannot be decrypted.
   */
  openJson(stored: Json, place: PayloadPlace): Json
  openText(stored: string | null, place: PayloadPlace): string | null
  /** Returns a key of a run in the form in which the source stores and compares it (P5). */
  sealKey(key: string, process: string, column: KeyColumn): string
  /** @throws {DecryptionError} if the key is sealed and cannot be decrypted. */
  openKey(stored: string, process: string, column: KeyColumn): string
}

const keyColumns: readonly PayloadColumn[] = [
  'ConcurrencyKey',
  'DebounceKey',
  'SlotKey',
] satisfies KeyColumn[]
export const isKeyColumn = (column: PayloadColumn): column is KeyColumn =>
  keyColumns.includes(column)

const ENVELOPE = String.raw`\d{1,10}:1\.([A-Za-z0-9_-]{1,32})\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22}`
/**
 * Matches the beginning of a sealed value (one `$`), and of client data that looks like a sealed value (P3: more than
 * one `$`).
 */
const LOOKS_SEALED = new RegExp(String.raw`^\$+sealed:${ENVELOPE}`)
const MEMBER = /^\$+sealed$/

/** @param keys with `null`, values are stored in plain text, and sealed values cannot be decrypted */
export function createPayloads(keys: KeyRing | null): Payloads {
  const recent = createRecentPayloads()

  function seal(plaintext: string, place: PayloadPlace): string {
    const { ReplayID } = place
    const sealed = `${ReplayID}:${(keys as KeyRing).seal(plaintext, placeOf(place, ReplayID))}`
    recent.add(sealed, place, plaintext)
    return sealed
  }

  function open(sealed: string, place: PayloadPlace): string {
    if (keys === null) throw new DecryptionError('PAYLOAD_KEYS is not set')
    const colon = sealed.indexOf(':')
    const replayId = Number(sealed.slice(0, colon))
    if (replayId > place.ReplayID) throw new DecryptionError('the payload belongs to a later run')
    const known = recent.find(sealed, place)
    if (known !== undefined) return known
    const plaintext = keys.open(sealed.slice(colon + 1), placeOf(place, replayId))
    recent.add(sealed, place, plaintext)
    return plaintext
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
      return parseJson(open(text.slice(PREFIX.length), place), OWN_TEXT) as Json
    },
    openText(stored, place) {
      if (stored === null || !LOOKS_SEALED.test(stored)) return stored
      return stored.startsWith('$$') ? stored.slice(1) : open(stored.slice(PREFIX.length), place)
    },
    sealKey(key, process, column) {
      if (keys === null) return LOOKS_SEALED.test(key) ? `$${key}` : key
      return `${PREFIX}0:${keys.sealWithLabels(key, placeOfKey(process, column), '')}`
    },
    openKey(stored, process, column) {
      if (!LOOKS_SEALED.test(stored)) return stored
      if (stored.startsWith('$$')) return stored.slice(1)
      if (keys === null) throw new DecryptionError('PAYLOAD_KEYS is not set')
      const envelope = stored.slice(stored.indexOf(':', PREFIX.length) + 1)
      return keys.open(envelope, placeOfKey(process, column))
    },
  }
}

const PREFIX = '$sealed:'

/** Converts a JSON value that looks sealed to the form of a text column. Returns `null` for every other value. */
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

/** The key of a slot has the same envelope as the concurrency key of the run, because both are compared (P5). */
const placeOfKey = (process: string, column: KeyColumn) => ({
  name: JSON.stringify([process]),
  field: column === 'SlotKey' ? 'ConcurrencyKey' : column,
  version: 0,
})

/** Returns the id of the key with which a stored payload is sealed; `null` if the payload is in plain text. */
export function sealedWith({ column, stored }: StoredPayload): string | null {
  const isText = column === 'ResponseBody' || isKeyColumn(column)
  const text = isText ? (stored as string) : sealedTextOf(stored)
  return text?.startsWith(PREFIX) ? (LOOKS_SEALED.exec(text)?.[1] ?? null) : null
}

/**
 * A cache of the payloads that this OS process has encrypted or decrypted most recently. A worker usually reads a
 * payload soon after it was encrypted, and a lookup in the cache takes a tenth of the time of a decryption.
 */
export interface RecentPayloads {
  add(sealed: string, place: PayloadPlace, plaintext: string): void
  /**
   * Returns the plain text of a sealed payload; `undefined` if the payload is not in the cache, or was sealed for
   * another place.
   */
  find(sealed: string, place: PayloadPlace): string | undefined
}

interface Entry {
  readonly sealed: string
  readonly place: PayloadPlace
  readonly plaintext: string
}

/**
 * The cache has two generations. When the younger generation is full, it becomes the older one, and the previous older
 * generation is dropped.
 *
 * @param maxLength the maximum length of all texts of a generation, in UTF-16 code units
 */
export function createRecentPayloads(maxLength = MAX_LENGTH): RecentPayloads {
  let younger = new Map<string, Entry>()
  let older = new Map<string, Entry>()
  let length = 0
  return {
    add(sealed, place, plaintext) {
      const added = sealed.length + plaintext.length
      if (added > maxLength) return
      if (length + added > maxLength) {
        older = younger
        younger = new Map()
        length = 0
      }
      younger.set(tagOf(sealed), { sealed, place, plaintext })
      length += added
    },
    find(sealed, place) {
      const tag = tagOf(sealed)
      const entry = younger.get(tag) ?? older.get(tag)
      if (entry?.sealed !== sealed || !isSamePlace(entry.place, place)) return undefined
      return entry.plaintext
    },
  }
}

/**
 * Compares the parts of a place to which the envelope is bound. `ReplayID` is not compared, because a replay may read
 * the payloads of an earlier run.
 */
const isSamePlace = (one: PayloadPlace, other: PayloadPlace): boolean =>
  one.Process === other.Process &&
  one.TransactionID === other.TransactionID &&
  one.column === other.column &&
  one.step === other.step

/**
 * Returns the authentication tag at the end of an envelope. The cache uses the tag as its key, because the tag differs
 * between envelopes and is quicker to hash than a whole envelope.
 */
const tagOf = (sealed: string): string => sealed.slice(-TAG_LENGTH)

const TAG_LENGTH = 22
const MAX_LENGTH = 4_000_000
