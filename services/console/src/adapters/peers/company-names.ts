import { reused } from '../../reused.ts'
import { withQuery } from '../../isomorphic/pages.ts'
import { nameOf } from '@integration-host/shared/contracts/text'
import { ProblemError } from '@integration-host/client/problem'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'
import type { ServiceClient } from './service-client.ts'

export interface CompanyNames {
  /** Returns the names by which people know these companies, by realm. A company without a name is left out. */
  of(realms: readonly string[]): Promise<Record<string, string>>
}

const KEPT_MS = 60_000
const PAGE = 500
/** The maximum number of pages that are read. Further companies are shown by their realm. */
const MAX_PAGES = 40

const Page = z.object({
  items: z.array(CredentialView.pick({ Name: true, Label: true, CompanyName: true })),
  next_cursor: z.string().nullable(),
})

/** Reads the names of all companies at most once a minute, and only if a page needs one. `now` is in milliseconds. */
export function createCompanyNames(tokenService: ServiceClient, now: () => number): CompanyNames {
  let names: ReadonlyMap<string, string> = new Map()

  async function readAll(): Promise<void> {
    const found = new Map<string, string>()
    let cursor: string | null | undefined
    for (let page = 0; cursor !== null && page < MAX_PAGES; page += 1) {
      const { items, next_cursor }: z.output<typeof Page> = await tokenService.read(
        withQuery('/credentials', { limit: PAGE, cursor }),
        Page,
      )
      for (const company of items) {
        const name = nameOf(company)
        if (name !== undefined) found.set(realmOf(company.Name), name)
      }
      cursor = next_cursor
    }
    names = found
  }

  // The failure is ignored, because the pages can be shown without the names.
  const read = reused(
    KEPT_MS,
    () =>
      readAll().catch((error: unknown) => {
        if (!(error instanceof ProblemError)) throw error
      }),
    now,
  )

  return {
    async of(realms) {
      if (realms.length > 0) await read()
      return Object.fromEntries(
        realms.flatMap((realm) => {
          const name = names.get(realm)
          return name === undefined ? [] : [[realm, name] as const]
        }),
      )
    },
  }
}
