import { z } from 'zod'
import { Realm } from './realm.ts'

const HIDDEN = 'null for a key without `transactions:read`'

/** Whether the steps of a company's runs wait. The response of `POST /realms/{realm}/pause` and `resume`. */
export const CompanyPauseView = z
  .object({
    Realm,
    Paused: z.boolean(),
    PausedAt: z.iso.datetime().nullable().meta({ description: 'null if it is not paused' }),
    PausedBy: z
      .string()
      .nullable()
      .meta({
        description: `a person or the id of a key; ${HIDDEN}`,
      }),
    Reason: z
      .string()
      .nullable()
      .meta({ description: `of the pause; ${HIDDEN}` }),
  })
  .meta({ ref: 'CompanyPause' })
export type CompanyPauseView = z.output<typeof CompanyPauseView>

/** The response of `GET /realms/paused`: the paused companies in the order of their ids. */
export const PausedCompanies = z
  .object({ items: z.array(CompanyPauseView) })
  .meta({ ref: 'PausedCompanies' })
export type PausedCompanies = z.output<typeof PausedCompanies>
