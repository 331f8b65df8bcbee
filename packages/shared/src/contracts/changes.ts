import { z } from 'zod'
import { Realm } from './realm.ts'

/** The response of `GET /realms/{realm}/changes`: how far the change feed of a company was read. */
export const ChangesView = z
  .object({
    Realm,
    ReadUntil: z.iso.datetime().meta({
      description:
        'every change before this time was read; the next sweep begins 5 minutes before it',
    }),
    LagSeconds: z.number().nonnegative().meta({ description: 'how long ago ReadUntil is' }),
    SweptAt: z.iso.datetime().nullable().meta({
      description: 'when the last sweep has ended; null before the first one',
    }),
    Events: z.int().nonnegative().meta({
      description:
        'the events that the last sweep has published, including those that webhooks had delivered before',
    }),
    Incomplete: z.string().nullable().meta({
      description: 'what the last sweep could not read; null if it has read everything',
    }),
  })
  .meta({ ref: 'Changes' })
export type ChangesView = z.output<typeof ChangesView>
