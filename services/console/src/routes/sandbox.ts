import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Realm, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Logger } from '@integration-host/shared/observability/logger'
import { type Context, Hono } from 'hono'
import { z } from 'zod'
import type { SandboxClient } from '../adapters/peers/sandbox-client.ts'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { sandboxActions, SandboxFaultBody, SandboxView } from '../contracts/sandbox.ts'
import { sessionOf } from './browser-guard.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface SandboxRouteDeps extends GuardDeps {
  readonly tokenService: ServiceClient
  /**
   * The client of the sandbox. It is `null` without `SANDBOX_URL`, and every route then responds 404.
   */
  readonly sandbox: SandboxClient | null
  readonly logger: Logger
}

const ROWS = 50
const CredentialPage = z.object({ items: z.array(CredentialView) })
const Empty = z.strictObject({})

/** The routes by which a person causes failures in the sandbox to see how the system handles them. */
export function sandboxRoutes(deps: SandboxRouteDeps): Hono {
  const { act, read } = guardedRoutes(deps, 'sandbox')
  const { tokenService, logger } = deps

  function sandbox(): SandboxClient {
    if (deps.sandbox === null)
      throw new IntegrationError('not_found', 'This installation has no sandbox')
    return deps.sandbox
  }
  /** The console logs which person acts, because the sandbox does not. */
  function done(c: Context, action: string, data: object = {}): Response {
    logger.info({ user: sessionOf(c).user, action, ...data }, 'person changed the sandbox')
    return c.body(null, 204)
  }

  return new Hono()
    .get(
      '/sandbox',
      ...read({
        operationId: 'getSandbox',
        summary: 'The companies of the sandbox, and the calls that are going to fail',
        view: ['the sandbox', SandboxView],
        async respond({ by }) {
          const [faults, { items }] = await Promise.all([
            sandbox().faults(),
            tokenService.send(`/credentials?limit=${ROWS}`, { person: by.person }, CredentialPage),
          ])
          return {
            Companies: items.map((company) => ({ ...company, Realm: realmOf(company.Name) })),
            Faults: faults,
          } satisfies SandboxView
        },
      }),
    )
    .post(
      '/sandbox/companies/:realm/:action',
      ...act({
        operationId: 'actOnSandboxCompany',
        summary: 'Revokes the grant of a company, or expires its access token',
        param: z.object({ realm: Realm, action: z.enum(sandboxActions) }),
        body: Empty,
        async respond({ c, param: { realm, action } }) {
          await sandbox().act(action, realm)
          return done(c, action, { realm })
        },
      }),
    )
    .post(
      '/sandbox/faults',
      ...act({
        operationId: 'failSandboxCalls',
        summary: 'Lets the next calls fail',
        body: SandboxFaultBody,
        async respond({ c, body: fault }) {
          await sandbox().fail(fault)
          return done(c, 'fail', fault)
        },
      }),
    )
    .post(
      '/sandbox/faults/clear',
      ...act({
        operationId: 'clearSandboxFaults',
        summary: 'Lets no further call fail',
        body: Empty,
        async respond({ c }) {
          await sandbox().clearFaults()
          return done(c, 'clear_faults')
        },
      }),
    )
    .post(
      '/sandbox/reset',
      ...act({
        operationId: 'resetSandbox',
        summary: 'Restores the state of the sandbox as it was at its start; no grant is valid then',
        body: Empty,
        async respond({ c }) {
          await sandbox().reset()
          return done(c, 'reset')
        },
      }),
    )
}
