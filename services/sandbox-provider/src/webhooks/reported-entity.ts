import {
  providerEntities,
  type ProviderEntity,
} from '@integration-host/shared/contracts/provider-event'

const reported: ReadonlyMap<string, ProviderEntity> = new Map(
  providerEntities.map((entity) => [entity, entity]),
)

/** Returns the entity if the provider reports its changes by webhook, and otherwise `null`. */
export const reportedEntity = (name: string): ProviderEntity | null => reported.get(name) ?? null
