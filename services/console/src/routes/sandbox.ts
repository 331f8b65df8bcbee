import { CredentialView } from '@integration-host/shared/contracts/credential'
import { Realm, realmOf } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { type Context, Hono } from 'hono'
import { describeRoute } from 'hono-openapi'
import { z } from 'zod'
import type { SandboxClient } from '../adapters/peers/sandbox-client.ts'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import { sandboxActions, SandboxFaultBody, SandboxView } from '../contracts/sandbox.ts'
import type { Sessions } from '../session/sessions.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import { ACTION_PROBLEMS, PEER_PROBLEMS } from './peer-problems.ts'

export interface SandboxRouteDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
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
  const { sessions, isHttps, tokenService, logger } = deps
  const tags = ['sandbox']
  const viewer = needsRole(sessions, 'viewer', isHttps)
  const operator = needsRole(sessions, 'operator', isHttps)
  const responses = { 204: { description: 'done' }, ...problemResponses(ACTION_PROBLEMS) }

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
      viewer,
      describeRoute({
        operationId: 'getSandbox',
        tags,
        summary: 'The companies of the sandbox, and the calls that are going to fail',
        responses: {
          200: jsonResponse('the sandbox', SandboxView),
          ...problemResponses(PEER_PROBLEMS),
        },
      }),
      async (c) => {
        const [faults, { items }] = await Promise.all([
          sandbox().faults(),
          tokenService.send(
            `/credentials?limit=${ROWS}`,
            { person: sessionOf(c).user },
            CredentialPage,
          ),
        ])
        return c.json({
          Companies: items.map((company) => ({ ...company, Realm: realmOf(company.Name) })),
          Faults: faults,
        } satisfies SandboxView)
      },
    )
    .post(
      '/sandbox/companies/:realm/:action',
      operator,
      describeRoute({
        operationId: 'actOnSandboxCompany',
        tags,
        summary: 'Revokes the grant of a company, or expires its access token',
        responses,
      }),
      validate('param', z.object({ realm: Realm, action: z.enum(sandboxActions) })),
      validate('json', Empty),
      async (c) => {
        const { realm, action } = c.req.valid('param')
        await sandbox().act(action, realm)
        return done(c, action, { realm })
      },
    )
    .post(
      '/sandbox/faults',
      operator,
      describeRoute({
        operationId: 'failSandboxCalls',
        tags,
        summary: 'Lets the next calls fail',
        responses,
      }),
      validate('json', SandboxFaultBody),
      async (c) => {
        const fault = c.req.valid('json')
        await sandbox().fail(fault)
        return done(c, 'fail', fault)
      },
    )
    .post(
      '/sandbox/faults/clear',
      operator,
      describeRoute({
        operationId: 'clearSandboxFaults',
        tags,
        summary: 'Lets no further call fail',
        responses,
      }),
      validate('json', Empty),
      async (c) => {
        await sandbox().clearFaults()
        return done(c, 'clear_faults')
      },
    )
    .post(
      '/sandbox/reset',
      operator,
      describeRoute({
        operationId: 'resetSandbox',
        tags,
        summary: 'Restores the state of the sandbox as it was at its start; no grant is valid then',
        responses,
      }),
      validate('json', Empty),
      async (c) => {
        await sandbox().reset()
        return done(c, 'reset')
      },
    )
}
