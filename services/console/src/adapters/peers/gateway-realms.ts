import { nameOf } from '@integration-host/shared/contracts/text'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { RealmActivityList, RealmCalls } from '@integration-host/shared/contracts/realm-activity'
import { credentialName } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { z } from 'zod'
import { replicaUrls } from './replicas.ts'
import type { ServiceClient } from './service-client.ts'

/** How long a response of the gateways is reused. All browsers share the response. */
const REUSED_MS = 2_000
const LABEL_REUSED_MS = 300_000
const MAX_LABELS = 10_000

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
  /** Returns the name by which people know a company; `null` if it has none, or the name cannot be read now. */
  label(realm: string, person: string): Promise<string | null>
}

export interface GatewayRealmsDeps {
  readonly gatewayUrl: string
  /** Returns the client of a replica. */
  readonly clientOf: (url: string) => ServiceClient
  readonly tokenService: ServiceClient
  readonly now: () => number
}

const Named = CredentialView.pick({ Label: true, CompanyName: true })

export function createGatewayRealms(deps: GatewayRealmsDeps): GatewayRealms {
  const { gatewayUrl, clientOf, tokenService, now } = deps
  const labels = new Map<string, { readonly at: number; readonly label: string | null }>()
  let latest: {
    readonly at: number
    readonly result: Promise<GatewayResponses<RealmActivityList>>
  } | null = null

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
    list(person) {
      if (latest !== null && now() - latest.at < REUSED_MS) return latest.result
      const result = readAll('/realms', person, RealmActivityList)
      latest = { at: now(), result }
      return result
    },
    find: (realm, person) => readAll(`/realms/${encodeURIComponent(realm)}`, person, RealmCalls),
    async label(realm, person) {
      const known = labels.get(realm)
      if (known !== undefined && now() - known.at < LABEL_REUSED_MS) return known.label
      try {
        const path = `/credentials/${credentialName(realm)}`
        const label = nameOf(await tokenService.send(path, { person }, Named)) ?? null
        if (labels.size >= MAX_LABELS) labels.clear()
        labels.set(realm, { at: now(), label })
        return label
      } catch (error) {
        // The label is optional. If there is none, for example for a disconnected company, the page shows the
        // id. While token-service is unavailable, the page keeps the label that was read before.
        if (!(error instanceof IntegrationError)) throw error
        return error.code === 'service_unavailable' ? (known?.label ?? null) : null
      }
    },
  }
}
