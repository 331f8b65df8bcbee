import { createService, type Reply } from '@integration-host/client/service'
import { CredentialView } from '@integration-host/shared/contracts/credential'
import { credentialName, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { reasonOf } from '@integration-host/shared/observability/health'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { z } from 'zod'
import type { ConnectedCompanies } from '../../company/connected-companies.ts'

export interface TokenServiceOptions {
  /** Base URL of token-service, from the setting `TOKEN_SERVICE_URL`. */
  readonly url: string
  /** The key of this service, which needs the scope `credentials:read`. */
  readonly key: Secret
  /** Timeout of one request in ms. */
  readonly timeoutMs?: number
  /** The maximum number of companies of a page, 1 to 500. */
  readonly pageSize?: number
}

const TIMEOUT_MS = 10_000
const PAGE_SIZE = 200
const MAX_BYTES = 8 * 1_048_576
const RETRY_AFTER_S = 5
/**
 * The states of a usable credential: all except `must_reconnect`. A failing refresh is retried, so runs wait for the
 * credential.
 */
const USABLE = 'active,expiring,failing'

const Page = z.object({
  items: z.array(CredentialView.pick({ Name: true })),
  next_cursor: z.string().min(1).nullable(),
})

/** Reads the connected companies from `GET /credentials` of token-service. */
export function createConnectedCompanies({
  url,
  key,
  timeoutMs = TIMEOUT_MS,
  pageSize = PAGE_SIZE,
}: TokenServiceOptions): ConnectedCompanies {
  const tokenService = createService({
    url: url.replace(/\/$/, ''),
    key,
    timeoutMs,
    maxBytes: MAX_BYTES,
  })
  const get = (path: string): Promise<Reply> =>
    tokenService.send(path).catch((cause: unknown) => {
      throw unavailable(`token-service is unavailable: ${reasonOf(cause)}`, cause)
    })

  return {
    async page(after) {
      const query = new URLSearchParams({ state: USABLE, limit: String(pageSize) })
      if (after !== null) query.set('cursor', after)
      const { status, text } = await get(`/credentials?${query.toString()}`)
      if (status !== 200) throw rejected(status)
      const page = Page.safeParse(parseJson(text, DOCUMENT_LIMITS))
      // A response whose `next_cursor` is the cursor of its own request is invalid: the caller would request the same
      // page for ever.
      if (!page.success || (after !== null && page.data.next_cursor === after))
        throw unavailable('token-service sent an invalid response')
      return {
        realms: page.data.items.map(({ Name }) => realmOf(Name)),
        next: page.data.next_cursor,
      }
    },
    async isConnected(realm) {
      const { status } = await get(`/credentials/${credentialName(realm)}`)
      if (status === 404) return false
      if (status !== 200) throw rejected(status)
      return true
    },
  }
}

const rejected = (status: number): IntegrationError =>
  unavailable(
    status === 401 || status === 403
      ? 'token-service does not accept the service key for credentials:read'
      : `token-service responded with status ${status}`,
  )

const unavailable = (message: string, cause?: unknown): IntegrationError =>
  new IntegrationError('token_service_unavailable', message, {
    retryAfterSeconds: RETRY_AFTER_S,
    cause,
  })
