import { RealmActivityList, RealmCalls } from '@integration-host/shared/contracts/realm-activity'
import { IntegrationError } from '@integration-host/shared/errors'
import type { z } from 'zod'
import { reused } from '../../reused.ts'
import { replicaUrls } from './replicas.ts'
import type { ServiceClient } from './service-client.ts'

/** How long a response of the gateways is reused. All browsers share the response. */
const REUSED_MS = 2_000

export interface GatewayResponses<Body> {
  readonly bodies: readonly Body[]
  /** The addresses of the replicas that have not responded. */
  readonly silent: readonly string[]
}

export interface GatewayRealms {
  /** Reads `GET /realms` of every replica. */
  list(person: string): Promise<GatewayResponses<RealmActivityList>>
  /** Reads `GET /realms/{realm}` of every replica. */
  find(realm: string, person: string): Promise<GatewayResponses<RealmCalls>>
}

/** `clientOf` returns the client of a replica. */
export function createGatewayRealms(
  gatewayUrl: string,
  clientOf: (url: string) => ServiceClient,
): GatewayRealms {
  /**
   * Reads `path` from every replica of the gateway.
   *
   * @throws {IntegrationError} `console_key_rejected` if a gateway does not accept the key of the console.
   */
  async function readAll<Schema extends z.ZodType>(
    path: string,
    person: string,
    schema: Schema,
  ): Promise<GatewayResponses<z.output<Schema>>> {
    const urls = await replicaUrls(gatewayUrl)
    const silent: string[] = []
    const bodies = await Promise.all(
      urls.map(async (url) => {
        try {
          return [await clientOf(url).send(path, { person }, schema)]
        } catch (error) {
          if (!(error instanceof IntegrationError) || error.code === 'console_key_rejected')
            throw error
          silent.push(new URL(url).host)
          return []
        }
      }),
    )
    return { bodies: bodies.flat(), silent }
  }

  return {
    list: reused(REUSED_MS, (person: string) => readAll('/realms', person, RealmActivityList)),
    find: (realm, person) => readAll(`/realms/${encodeURIComponent(realm)}`, person, RealmCalls),
  }
}
