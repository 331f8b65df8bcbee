import { randomBytes } from 'node:crypto'
import { createServiceApp } from '@integration-host/shared/http/service-app'
import type { Hono } from 'hono'
import { createProvider, type SandboxProviderDeps } from './provider.ts'
import { accountingRoutes } from './routes/accounting.ts'
import { downloadRoutes } from './routes/attachments.ts'
import { authorizeRoutes } from './routes/authorize.ts'
import { controlGuard, hostGuard } from './routes/guards.ts'
import { discoveryRoutes } from './routes/discovery.ts'
import { identityRoutes } from './routes/identity.ts'
import { revocationRoutes } from './routes/revocation.ts'
import { sandboxRoutes } from './routes/sandbox.ts'
import { tokenRoutes } from './routes/token.ts'
import { webhookRoutes } from './routes/webhooks.ts'

const MAX_BODY_BYTES = 1_048_576
/** Large enough for attachments that are uploaded through the gateway. They are not parsed. */
const MAX_UPLOAD_BYTES = 16 * 1_048_576

/** Creates the app of a fake accounting provider, which contains an identity provider and an accounting API. */
export function createApp(deps: SandboxProviderDeps): Hono {
  const provider = createProvider(deps)
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
      app.route('/', discoveryRoutes(provider))
      app.route('/', authorizeRoutes(provider))
      app.route('/', tokenRoutes(provider))
      app.route('/', revocationRoutes(provider))
      app.route('/', identityRoutes(provider))
      app.route('/', accountingRoutes(provider))
      app.route('/', downloadRoutes(provider))
      app.route('/', controlGuard)
      app.route('/', sandboxRoutes(provider))
      app.route('/', webhookRoutes(provider))
    },
  )
}

/** Returns a trace id in Intuit's form: `1-<epoch seconds in hex>-<24 hex digits>`. */
const traceId = (nowMs: number): string =>
  `1-${Math.floor(nowMs / 1_000).toString(16)}-${randomBytes(12).toString('hex')}`
