import { randomBytes } from 'node:crypto'
import type { Health } from '@integration-host/shared/observability/health'
import type { Logger } from '@integration-host/shared/observability/logger'
import type { Metrics } from '@integration-host/shared/observability/metrics'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
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
import type { IdentitySigner } from './identity/identity-signer.ts'
import type { SandboxMemory } from './memory.ts'
import { accountingRoutes } from './routes/accounting.ts'
import { downloadRoutes } from './routes/attachments.ts'
import type { Addresses } from './routes/addresses.ts'
import { authorizeRoutes } from './routes/authorize.ts'
import type { Client } from './routes/client-authentication.ts'
import { controlGuard, hostGuard } from './routes/guards.ts'
import { discoveryRoutes } from './routes/discovery.ts'
import { identityRoutes } from './routes/identity.ts'
import { revocationRoutes } from './routes/revocation.ts'
import { sandboxRoutes } from './routes/sandbox.ts'
import { tokenRoutes } from './routes/token.ts'
import { webhookRoutes } from './routes/webhooks.ts'
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

const MAX_BODY_BYTES = 1_048_576
/** Large enough for attachments that are uploaded through the gateway. They are not parsed. */
const MAX_UPLOAD_BYTES = 16 * 1_048_576

/** Creates the app of a fake accounting provider, which contains an identity provider and an accounting API. */
export function createApp(deps: SandboxProviderDeps): Hono {
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
  const shared = {
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
    onWritten,
    attachments: createAttachments({ now: deps.now, random }),
    grants: createGrants({
      now: deps.now,
      random,
      settings: () => settings.current(),
      counters,
      memory: deps.memory.grants,
    }),
    now: deps.now,
    addresses: deps.addresses,
    client: deps.client,
    disconnectUrl: deps.disconnectUrl,
    signer: deps.signer,
    webhooks: deps.webhooks ?? null,
  }
  return createServiceApp(
    {
      name: 'sandbox-provider',
      purpose:
        'A fake accounting provider, so that everything runs without an account. It behaves as Intuit documents itself (personality `intuit`) or as strictly as the standards allow (`strict`). One exception: it accepts redirect URIs with a loopback address, such as http://127.0.0.1:7217/callback; Intuit accepts https without IP addresses, and http://localhost with development keys only.',
      logger: deps.logger,
      health: deps.health,
      metrics: deps.metrics,
      keys: null,
      // In development, the sandbox takes the place of the real provider. Its spans therefore belong to the trace of
      // the service that called it.
      continuesTraces: () => true,
      maxBodyBytes: MAX_BODY_BYTES,
      maxBodyBytesAt: { '*/upload': MAX_UPLOAD_BYTES },
    },
    (app) => {
      app.route('/', hostGuard(deps.addresses))
      app.use(async (c, next) => {
        await next()
        if (!c.req.path.startsWith('/v3/')) deps.changed()
        // Intuit sends the header intuit_tid with every response, and Intuit's support asks for the value of this
        // header.
        if (!c.res.headers.has('intuit_tid')) c.res.headers.set('intuit_tid', traceId(deps.now()))
      })
      app.route('/', discoveryRoutes(shared))
      app.route(
        '/',
        authorizeRoutes({
          ...shared,
          clientId: deps.client.id,
          redirectUris: deps.redirectUris,
          freshRealm,
        }),
      )
      app.route('/', tokenRoutes(shared))
      app.route('/', revocationRoutes(shared))
      app.route('/', identityRoutes(shared))
      app.route('/', accountingRoutes(shared))
      app.route('/', downloadRoutes(shared))
      app.route('/', controlGuard)
      app.route('/', sandboxRoutes(shared))
      app.route('/', webhookRoutes(shared))
    },
  )
}

/** The counters of successful writes; other writes are not counted. */
const WRITE_COUNTERS: Partial<Readonly<Record<string, RealmCounter>>> = {
  created: 'entitiesCreated',
  'played-back': 'playedBack',
}

const random = (): string => randomBytes(24).toString('base64url')

/** Returns a trace id in Intuit's form: `1-<epoch seconds in hex>-<24 hex digits>`. */
const traceId = (nowMs: number): string =>
  `1-${Math.floor(nowMs / 1_000).toString(16)}-${randomBytes(12).toString('hex')}`

/** Returns a random realm id of 16 digits, the length of Intuit's realm ids. */
const freshRealm = (): string =>
  `9${String(randomBytes(6).readUIntBE(0, 6)).padStart(15, '0').slice(0, 15)}`
