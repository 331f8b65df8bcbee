import { Hono } from 'hono'
import { NowView } from '../contracts/now.ts'
import { IntegrityView, ServicesView } from '../contracts/services.ts'
import { changesNothing } from './browser-guard.ts'
import { type GuardDeps, guardedRoutes } from './guarded-route.ts'

export interface StateRouteDeps extends GuardDeps {
  readonly now: () => NowView
  readonly services: () => ServicesView
  readonly checkIntegrity: () => Promise<IntegrityView>
}

const COMMON = { 401: 'no session', 403: 'not a page of the console, or another role is needed' }

/**
 * The routes of the pages *Now* and *Health*. Their responses come from memory, so they cause no
 * request to a service.
 */
export function stateRoutes(deps: StateRouteDeps): Hono {
  const { withRole } = guardedRoutes(deps, 'state')
  const read = withRole('viewer', COMMON)
  return new Hono()
    .get(
      '/now',
      ...read({
        operationId: 'getNow',
        summary: 'What needs a person, and the state of the installation',
        view: ['the first page', NowView],
        respond: () => deps.now(),
      }),
    )
    .get(
      '/services',
      ...read({
        operationId: 'getServices',
        summary: 'Each replica of each service with its dependencies',
        view: ['the services', ServicesView],
        respond: () => deps.services(),
      }),
    )
    .post(
      '/integrity',
      ...withRole('operator', {
        ...COMMON,
        415: 'not application/json',
        503: 'the coordinator is unavailable',
      })({
        operationId: 'checkIntegrity',
        summary: 'Reads the whole tables of the coordinator, at most once in 30 s',
        view: ['the counts', IntegrityView],
        respond({ c }) {
          changesNothing(c)
          return deps.checkIntegrity()
        },
      }),
    )
}
