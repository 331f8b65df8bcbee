import { type CompaniesMemory, companiesAlwaysThere } from './company/companies.ts'
import { emptyGrants, type GrantsMemory } from './grant/grants.ts'

/** The state of the provider. It consists of plain Maps, so that it can be serialized. */
export interface SandboxMemory {
  readonly companies: CompaniesMemory
  readonly grants: GrantsMemory
}

export const emptyMemory = (): SandboxMemory => ({
  companies: companiesAlwaysThere(),
  grants: emptyGrants(),
})
