import type { Hono } from 'hono'
import { NowView } from '../contracts/now.ts'
import { IntegrityView, ServicesView } from '../contracts/services.ts'
import { changesNothing } from './browser-guard.ts'
import { guardedRoutes, OWN_PROBLEMS, type RouteDeps } from './guarded-route.ts'

/**
 * The routes of the pages *Now* and *Health*. Their responses come from memory, so they cause no
 * request to a service.
 */
export function stateRoutes(deps: RouteDeps): Hono {
  const { withRole, routes } = guardedRoutes(deps, 'state')
  const read = withRole('GET', 'viewer', OWN_PROBLEMS)
  read('/now', {
    operationId: 'getNow',
    summary: 'What needs a person, and the state of the installation',
    view: ['the first page', NowView],
    respond: () => deps.now(),
  })
  read('/services', {
    operationId: 'getServices',
    summary: 'Each replica of each service with its dependencies',
    view: ['the services', ServicesView],
    respond: () => deps.services(),
  })
  withRole('POST', 'operator', {
    401: 'no session',
    403: 'not a page of the console, or another role is needed',
    415: 'not application/json',
    503: 'the coordinator is unavailable',
  })('/integrity', {
    operationId: 'checkIntegrity',
    summary: 'Reads the whole tables of the coordinator, at most once in 30 s',
    view: ['the counts', IntegrityView],
    respond({ c }) {
      changesNothing(c)
      return deps.checkIntegrity()
    },
  })
  return routes
}
