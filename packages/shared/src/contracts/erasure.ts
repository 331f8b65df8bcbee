import { z } from 'zod'

/**
 * The response of `POST /erasures`. The member `more` says whether further runs have to be erased. All other members
 * are counts.
 */
export const ErasureResult = z
  .object({
    erased: z.int().meta({ description: 'runs whose data was blanked by this request' }),
    files: z.int().meta({ description: 'files of these runs that were removed' }),
    filesLeft: z.int().meta({
      description:
        'runs that keep their data, because a file could not be removed; the log says why. Send the request again',
    }),
    more: z.boolean().meta({ description: 'runs are left: send the same request again' }),
    notEnded: z.int().meta({
      description:
        'runs that have not ended, or were cancelled during an attempt less than 30 seconds ago, and keep their data: ' +
        'send the request again when they have',
    }),
    unknown: z.int().meta({ description: 'Ids without a run' }),
  })
  .meta({ ref: 'ErasureResult' })
export type ErasureResult = z.output<typeof ErasureResult>
