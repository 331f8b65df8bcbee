/** The search over runs, objects in the books, companies and processes. The browser itself adds the pages. */
import { z } from 'zod'
import { MissingService } from './services.ts'

const hitKinds = ['run', 'object', 'company', 'process'] as const

const SearchHit = z.object({
  Kind: z.enum(hitKinds),
  Text: z.string(),
  Detail: z.string(),
  Page: z.string().meta({ description: 'the address of its page' }),
})
export type SearchHit = z.output<typeof SearchHit>

export const SearchQuery = z.strictObject({ q: z.string().trim().min(1).max(100) })

export const SearchView = z
  .object({
    Hits: z.array(SearchHit),
    Unavailable: z.array(MissingService),
  })
  .meta({ ref: 'Search' })
export type SearchView = z.output<typeof SearchView>
