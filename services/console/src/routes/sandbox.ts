import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Realm, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import type { Context, Hono } from 'hono'
import { z } from 'zod'
import type { SandboxClient } from '../adapters/peers/sandbox-client.ts'
import { sandboxActions, SandboxFaultBody, SandboxView } from '../contracts/sandbox.ts'
import { sessionOf } from './browser-guard.ts'
import { guardedRoutes, type RouteDeps } from './guarded-route.ts'

const ROWS = 50
const CredentialPage = z.object({ items: z.array(CredentialView) })
const Empty = z.strictObject({})

/** The routes by which a person causes failures in the sandbox to see how the system handles them. */
export function sandboxRoutes(deps: RouteDeps): Hono {
  const { act, read, routes } = guardedRoutes(deps, 'sandbox')
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

  read('/sandbox', {
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
  })
  act('/sandbox/companies/:realm/:action', {
    operationId: 'actOnSandboxCompany',
    summary: 'Revokes the grant of a company, or expires its access token',
    param: z.object({ realm: Realm, action: z.enum(sandboxActions) }),
    body: Empty,
    async respond({ c, param: { realm, action } }) {
      await sandbox().act(action, realm)
      return done(c, action, { realm })
    },
  })
  act('/sandbox/faults', {
    operationId: 'failSandboxCalls',
    summary: 'Lets the next calls fail',
    body: SandboxFaultBody,
    async respond({ c, body: fault }) {
      await sandbox().fail(fault)
      return done(c, 'fail', fault)
    },
  })
  act('/sandbox/faults/clear', {
    operationId: 'clearSandboxFaults',
    summary: 'Lets no further call fail',
    body: Empty,
    async respond({ c }) {
      await sandbox().clearFaults()
      return done(c, 'clear_faults')
    },
  })
  act('/sandbox/reset', {
    operationId: 'resetSandbox',
    summary: 'Restores the state of the sandbox as it was at its start; no grant is valid then',
    body: Empty,
    async respond({ c }) {
      await sandbox().reset()
      return done(c, 'reset')
    },
  })
  return routes
}
