import type { Logger } from '@integration-host/shared/observability/logger'
import type { NetworkOf } from '@integration-host/shared/http/peer-network'
import type { Authorization } from '../authorization/authorization-request.ts'
import type { CompleteAuthorization, ExchangeAdmission } from '../authorization/callback.ts'
import type { CodeExchanges } from '../authorization/code-exchange.ts'
import type { ConnectLinkStore } from '../authorization/connect-link-store.ts'
import type { ConnectLinks } from '../authorization/connect-links.ts'
import type { AccessTokens } from '../credential/access-token.ts'
import type { Adoptions } from '../credential/adoption.ts'
import type { TakeActions } from '../credential/audit-retention.ts'
import type { CredentialStore } from '../credential/credential-store.ts'
import type { DisconnectHints } from '../credential/disconnect-hints.ts'
import type { RotateKeys } from '../credential/key-rotation.ts'
import type { ChangeLabels } from '../credential/labels.ts'
import type { RemoveCredential } from '../credential/removal.ts'
import type { Transfers } from '../credential/transfer.ts'
import type { Browser } from './browser.ts'

/** What the routes use of the service. Each route takes only the members that it needs. */
export interface RouteDeps {
  readonly logger: Logger
  readonly store: CredentialStore
  readonly accessTokens: AccessTokens
  readonly changeLabels: ChangeLabels
  readonly remove: RemoveCredential
  readonly disconnectHints: DisconnectHints
  readonly takeActions: TakeActions
  readonly transfers: Transfers
  readonly adoptions: Adoptions
  readonly rotateKeys: RotateKeys
  readonly authorization: Authorization
  readonly completeAuthorization: CompleteAuthorization
  readonly exchanges: CodeExchanges
  readonly admission: ExchangeAdmission
  readonly links: ConnectLinkStore
  readonly connectLinks: ConnectLinks
  readonly browser: Browser
  readonly networkOf: NetworkOf
  /** Returns whether a credential of this name is stored. */
  readonly isKnown: (name: string) => Promise<boolean>
  /** Returns the name by which people know the company of a credential; `null` if it has none, or is not stored. */
  readonly nameOf: (name: string) => Promise<string | null>
  /** Resolves when the name of a company that was just connected is read, or after a short time. */
  readonly nameSettled: (name: string) => Promise<void>
  /** Whether any client can start an authorization with `GET /authorize` (the setting `AUTHORIZE`). */
  readonly isAuthorizeOpen: boolean
  /** The setting `REDIRECT`: the URL of this service to which the provider redirects browsers. */
  readonly redirectUri: URL
  /** The setting `REFRESH_AHEAD_SECONDS` in milliseconds, from which the time of the next refresh is computed. */
  readonly refreshAheadMs: number
  /** This signal is aborted when the service shuts down. */
  readonly shutdown: AbortSignal
}
