import { Realm } from '@integration-host/shared/contracts/realm'
import { z } from 'zod'

export const CompanyName = z
  .string()
  .trim()
  .min(1, 'must not be empty')
  .max(100, 'must have at most 100 characters')
  .refine((name) => !/\p{Cc}/u.test(name), 'must not contain control characters')

export const Company = z.object({ realm: Realm, name: CompanyName })
export type Company = z.output<typeof Company>

/**
 * The companies that the authorization page offers: three built-in companies, and those that users and scripts have
 * added.
 */
export interface Companies {
  list(): readonly Company[]
  find(realm: string): Company | null
  /**
   * Adds a company or renames an existing one. Returns `false` if the company is new and {@link MAX_COMPANIES} is
   * reached.
   */
  put(company: Company): boolean
  reset(): void
}

/**
 * The maximum number of companies. It limits the memory use, because the authorization endpoint requires no sign-in, so
 * any client can add companies.
 */
export const MAX_COMPANIES = 2_000

// Realm ids are strings, because Intuit's realm ids can exceed the precision of a double. The first realm id below
// would change if it were parsed as a number.
const ALWAYS_THERE: readonly Company[] = [
  { realm: '9341453908059889', name: 'Northwind Trading' },
  { realm: '4620816365291', name: 'Rosewood Interiors' },
  { realm: '123146096291789', name: 'Harbour Street Bakery' },
]

/** The companies by realm. */
export type CompaniesMemory = Map<string, Company>

export const companiesAlwaysThere = (): CompaniesMemory =>
  new Map(ALWAYS_THERE.map((company) => [company.realm, company]))

export function createCompanies(companies: CompaniesMemory): Companies {
  const reset = (): void => {
    companies.clear()
    for (const company of ALWAYS_THERE) companies.set(company.realm, company)
  }
  return {
    list: () => [...companies.values()],
    find: (realm) => companies.get(realm) ?? null,
    put(company) {
      if (companies.size >= MAX_COMPANIES && !companies.has(company.realm)) return false
      companies.set(company.realm, company)
      return true
    },
    reset,
  }
}
