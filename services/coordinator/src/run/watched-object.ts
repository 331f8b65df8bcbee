import type { ProviderEntity } from '@integration-host/shared/contracts/provider-event'

/** An object in the books of a company, for whose change a run waits. */
export interface WatchedObject {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
}
