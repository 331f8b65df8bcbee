import { hkdfSync } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseJsonAs } from '@integration-host/shared/json'
import { DecryptionError, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/** A cursor as a query parameter. An id that another program has inserted may be long. */
export const CursorParam = z.string().max(4_000)

/**
 * Makes the cursors of lists. A list may stop at an entry that the caller may not see, so a cursor is encrypted: it
 * reveals nothing of the entry, and the caller can name no position of its own. It opens only for the list that made it.
 */
export interface SealedCursors {
  seal(list: string, position: unknown): string
  /** @throws {IntegrationError} `invalid_request` if the cursor was not made for this list. */
  open<Position extends z.ZodType>(
    list: string,
    cursor: string,
    position: Position,
  ): z.output<Position>
}

/**
 * The keys are derived from the keys that callers present to the services, because all replicas have them. The first
 * one seals, and each one opens, so that a list can be read on while the keys are rotated.
 */
export function createSealedCursors(serviceKeys: readonly Secret[]): SealedCursors {
  const keys = serviceKeys.map((key) => {
    const derived = Buffer.from(hkdfSync('sha256', key.reveal(), '', 'cursors of lists', 36))
    return `${derived.toString('hex', 32)}:${derived.toString('base64', 0, 32)}`
  })
  const ring = parseKeyRing(new Secret(keys.join(',')))
  const placeOf = (list: string) => ({ name: list, field: 'cursor', version: 1 })
  const opened = (list: string, cursor: string): string => {
    try {
      return ring.open(cursor, placeOf(list))
    } catch (error) {
      if (error instanceof DecryptionError) return ''
      throw error
    }
  }
  return {
    seal: (list, position) => ring.seal(JSON.stringify(position), placeOf(list)),
    open(list, cursor, position) {
      const found = parseJsonAs(position, opened(list, cursor))
      if (found !== null) return found
      throw new IntegrationError(
        'invalid_request',
        'cursor: must be the next_cursor of a previous page of the same list, with the same order',
      )
    },
  }
}
