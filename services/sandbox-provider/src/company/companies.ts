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

/**
 * The companies that the authorization page offers: three built-in companies, and those that users and scripts have
 * added.
 */
export const createCompanies = (companies: CompaniesMemory) => ({
  list: (): readonly Company[] => [...companies.values()],
  find: (realm: string): Company | null => companies.get(realm) ?? null,
  /** Adds or renames a company. Returns `false` if it is new and {@link MAX_COMPANIES} is reached. */
  put(company: Company): boolean {
    if (companies.size >= MAX_COMPANIES && !companies.has(company.realm)) return false
    companies.set(company.realm, company)
    return true
  },
  reset() {
    companies.clear()
    for (const [realm, company] of companiesAlwaysThere()) companies.set(realm, company)
  },
})
export type Companies = ReturnType<typeof createCompanies>
