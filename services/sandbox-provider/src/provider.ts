/** The state of the provider, which all of its routes share. */
import { randomBytes } from 'node:crypto'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { createAttachments } from './accounting/attachments.ts'
import { type BooksDeps, createBooks } from './accounting/books.ts'
import { createPostedEntities } from './accounting/posted-entities.ts'
import { createCompanies } from './company/companies.ts'
import { createPreferences } from './company/preferences.ts'
import { createCounters, type RealmCounter } from './control/counters.ts'
import { createFaults } from './control/faults.ts'
import type { PersonalityName } from './control/personalities.ts'
import { createSettings } from './control/settings.ts'
import { createGrants } from './grant/grants.ts'
import type { IdentitySigner } from './identity/id-token.ts'
import type { SandboxMemory } from './memory.ts'
import type { WebhookSender } from './webhooks/webhook-sender.ts'

export interface SandboxProviderDeps {
  readonly logger: Logger
  readonly health: Health
  readonly metrics: Metrics
  readonly client: Client
  /** The registered redirect URIs; `null` accepts any redirect URI with a loopback host. */
  readonly redirectUris: readonly string[] | null
  /** The Disconnect URL of the application; `null` if the application has no Disconnect URL. */
  readonly disconnectUrl: string | null
  /**
   * The provider whose behaviour is imitated, such as `intuit`. It applies at the start and after each reset of the
   * sandbox.
   */
  readonly personality: PersonalityName
  readonly signer: IdentitySigner
  /** Returns the addresses of this provider. They are known only after the server has started to listen. */
  readonly addresses: () => Addresses
  /** Returns the time in epoch milliseconds. */
  readonly now: () => number
  readonly memory: SandboxMemory
  /** Called after each request that may have changed the provider's state. */
  readonly changed: () => void
  /** Sends a webhook for each change of an object; `undefined` if no webhooks are sent. */
  readonly webhooks?: WebhookSender
}

export interface Client {
  readonly id: string
  readonly secret: Secret
}

/** The base addresses that this provider publishes in its discovery document. */
export interface Addresses {
  /** The base address that services use, without a trailing slash. */
  readonly base: string
  /** The base address that browsers use. */
  readonly browser: string
}

/** Returns the issuer. As with Intuit, its path differs from the path of the discovery document. */
export const issuerOf = ({ base }: Addresses): string => `${base}/op/v1`

export const paths = {
  authorize: '/connect/oauth2',
  token: '/oauth2/v1/tokens/bearer',
  revoke: '/v2/oauth2/tokens/revoke',
  jwks: '/op/v1/jwks',
  userinfo: '/v1/openid_connect/userinfo',
} as const

export function createProvider(deps: SandboxProviderDeps) {
  const settings = createSettings(deps.personality)
  const counters = createCounters()
  const companies = createCompanies(deps.memory.companies)
  const preferences = createPreferences()
  const posted = createPostedEntities({
    closedUntil: (realm) => preferences.closedUntil(realm),
    playsBackRequestIds: () => settings.current().playsBackRequestIds,
  })
  const onWritten: BooksDeps['onWritten'] = (realm, kind) => {
    const counter = WRITE_COUNTERS[kind]
    if (counter !== undefined) counters.count(realm, counter)
  }
  return {
    ...deps,
    settings,
    counters,
    faults: createFaults(),
    companies,
    preferences,
    posted,
    books: createBooks({
      posted,
      preferences,
      findCompany: (realm) => companies.find(realm),
      visibleAfterMs: () => settings.current().visibleAfterMs,
      onChange: deps.webhooks?.onChange ?? (() => {}),
      onWritten,
    }),
    /** Called after each successful write of a company, with the kind of its result. */
    onWritten,
    attachments: createAttachments(deps.now, random),
    grants: createGrants({
      now: deps.now,
      random,
      settings: () => settings.current(),
      counters,
      memory: deps.memory.grants,
    }),
    /** Sends webhooks; `null` if the sandbox has no address to which it can send them. */
    webhooks: deps.webhooks ?? null,
  }
}
export type Provider = ReturnType<typeof createProvider>

/** The counters of successful writes; other writes are not counted. */
const WRITE_COUNTERS: Partial<Readonly<Record<string, RealmCounter>>> = {
  created: 'entitiesCreated',
  'played-back': 'playedBack',
}

const random = (): string => randomBytes(24).toString('base64url')

/** Returns a random realm id of 16 digits, the length of Intuit's realm ids. */
export const freshRealm = (): string =>
  `9${String(randomBytes(6).readUIntBE(0, 6)).padStart(15, '0').slice(0, 15)}`
