import type {
  ProviderEntity,
  ProviderOperation,
} from '@integration-host/shared/contracts/provider-event'

/** One change of an object of a company. */
export interface BookChange {
  readonly realm: string
  readonly entity: ProviderEntity
  readonly id: string
  readonly operation: ProviderOperation
  /** When the object was changed, in epoch milliseconds. It equals the object's `MetaData.LastUpdatedTime`. */
  readonly changedAt: number
  /** The id of the object that a merge has merged into `id` and deleted. */
  readonly deletedId?: string
}

/**
 * Called after each change of an object, as soon as queries return the changed object. The function returns
 * immediately and never throws.
 */
export type OnChange = (change: BookChange) => void
