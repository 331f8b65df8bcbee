import {
  providerEntities,
  type ProviderEntity,
} from '@integration-host/shared/contracts/provider-event'

/** The entities that clients cannot create, although the provider reports their changes. */
type NotPosted = 'Currency' | 'Preferences'

export type Entity = Exclude<ProviderEntity, NotPosted> | 'Attachable'

/** The entities that clients can post, in Intuit's spelling. */
const ENTITIES: readonly Entity[] = [
  ...providerEntities.filter((entity) => entity !== 'Currency' && entity !== 'Preferences'),
  'Attachable',
]

/**
 * Returns the entity for its name in a path (`salesreceipt`) or in a query; `null` if the sandbox does not support this
 * entity.
 */
export const entityOf = (name: string): Entity | null =>
  ENTITIES.find((entity) => entity.toLowerCase() === name.toLowerCase()) ?? null

interface NameRule {
  /** The value of this member must be unique across all entities of the kinds in `among`. */
  readonly member: 'DisplayName' | 'Name'
  readonly among: readonly Entity[]
}

const PEOPLE: NameRule = { member: 'DisplayName', among: ['Customer', 'Vendor', 'Employee'] }

/** The rules that make names unique within a company. Names are compared case-insensitively. */
export const uniqueNames: Partial<Readonly<Record<Entity, NameRule>>> = {
  Customer: PEOPLE,
  Vendor: PEOPLE,
  Employee: PEOPLE,
  Item: { member: 'Name', among: ['Item'] },
}
