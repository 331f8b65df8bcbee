import type { PayloadPlace } from './payload.ts'

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
