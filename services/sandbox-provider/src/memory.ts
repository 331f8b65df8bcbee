import { type CompaniesMemory, companiesAlwaysThere } from './company/companies.ts'
import { emptyGrants, type GrantsMemory } from './grant/grants.ts'

/** All that outlives a request: plain maps, so that they can be kept. */
export interface SandboxMemory {
  readonly companies: CompaniesMemory
  readonly grants: GrantsMemory
}

export const emptyMemory = (): SandboxMemory => ({
  companies: companiesAlwaysThere(),
  grants: emptyGrants(),
})
