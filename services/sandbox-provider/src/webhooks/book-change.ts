import type {
  ProviderEntity,
  ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'

/** One change of an object in the books of a company. */
export interface BookChange {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
  readonly operation: ProviderOperation
  /** When the object was changed, in epoch milliseconds. It equals the object's `MetaData.LastUpdatedTime`. */
  readonly changedAt: number
  /** For a merge: the id of the object that was merged into `id` and deleted. */
  readonly deletedId?: string
}

/** Called after each change of the books, when the change can be read. It returns at once and never throws. */
export type OnChange = (change: BookChange) => void
