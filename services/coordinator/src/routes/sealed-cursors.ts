import { hkdfSync } from 'node:crypto'
import { IntegrationError } from '@integration-host/shared/errors'
import { parseJsonAs } from '@integration-host/shared/json'
import { DecryptionError, parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'

/**
 * A cursor as a query parameter. Its maximum length is large, because another program may have inserted a run with a
 * long id.
 */
export const CursorParam = z.string().max(4_000)

/**
 * Creates and reads the cursors of lists. A cursor is valid only for the list for which it was created.
 *
 * Cursors are encrypted for two reasons: a page may end at an entry that the caller may not see, and a caller must not
 * choose a position.
 */
export type SealedCursors = ReturnType<typeof createSealedCursors>

/**
 * Creates cursors whose encryption keys are derived from the service keys, because all replicas have the service keys.
 * The first key encrypts, and every key can decrypt. Therefore clients can continue a list while the keys are rotated.
 */
export function createSealedCursors(serviceKeys: readonly Secret[]) {
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
    seal: (list: string, position: unknown): string =>
      ring.seal(JSON.stringify(position), placeOf(list)),
    /** @throws {IntegrationError} `invalid_request` if the cursor was not made for this list. */
    open<Position extends z.ZodType>(
      list: string,
      cursor: string,
      position: Position,
    ): z.output<Position> {
      const found = parseJsonAs(position, opened(list, cursor))
      if (found !== null) return found
      throw new IntegrationError(
        'invalid_request',
        'cursor: must be the next_cursor of a previous page of the same list, with the same order',
      )
    },
  }
}
