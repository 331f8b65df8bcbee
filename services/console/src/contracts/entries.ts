/** The page Entries: what runs have written to the books of companies. */
import { EntryFilter, EntryView } from '@integration-host/shared/contracts/company'
import { z } from 'zod'

/** An entry without the hashes of its fields, which no page shows. */
export const EntryRow = EntryView.omit({ Fields: true, SyncToken: true }).meta({ ref: 'EntryRow' })
export type EntryRow = z.output<typeof EntryRow>

export const EntriesQuery = EntryFilter.extend({ cursor: z.string().max(4_096).optional() })

export const EntriesView = z
  .object({
    Entries: z.array(EntryRow),
    Next: z.string().nullable(),
    Companies: z
      .record(z.string(), z.string())
      .meta({ description: 'the names of the companies of these entries, by realm' }),
  })
  .meta({ ref: 'Entries' })
export type EntriesView = z.output<typeof EntriesView>
