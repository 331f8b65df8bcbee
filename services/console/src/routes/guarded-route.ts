/** The routes with which the pages read from the services, and change something at the services. */
import type { AccessKeys } from '@integration-host/shared/access/access-keys'
import type { Role } from '@integration-host/shared/access/scope'
import type { NetworkOf } from '@integration-host/shared/http/peer-network'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { Logger } from '@integration-host/shared/observability/logger'
import { type Context, Hono } from 'hono'
import { describeRoute, type DescribeRouteOptions } from 'hono-openapi'
import type { z } from 'zod'
import type { OpenIdProvider } from '../adapters/openid/openid-provider.ts'
import type { CompanyNames } from '../adapters/peers/company-names.ts'
import type { GatewayRealms } from '../adapters/peers/gateway-realms.ts'
import type { SandboxClient } from '../adapters/peers/sandbox-client.ts'
import type { ServiceClient } from '../adapters/peers/service-client.ts'
import type { ReadRange } from '../adapters/prometheus/prometheus.ts'
import type { NowView } from '../contracts/now.ts'
import type { IntegrityView, ServicesView } from '../contracts/services.ts'
import type { CommandLine, SignInWay } from '../contracts/session.ts'
import type { PresentLists } from '../session/authorize.ts'
import type { KnownBrowsers } from '../session/known-browsers.ts'
import type { OneTimeLinks } from '../session/one-time-link.ts'
import type { Sessions } from '../session/sessions.ts'
import type { SignInDelay } from '../session/sign-in-delay.ts'
import type { FlowSeal } from '../session/sign-in-flow.ts'
import type { SignInLog } from '../session/sign-in-log.ts'
import type { RequestStore } from '../session/stores.ts'
import type { Installation } from '../view/installation.ts'
import { needsRole, sessionOf } from './browser-guard.ts'
import type { BrowserStreams } from './stream.ts'

/** What the routes need. */
export interface RouteDeps extends PresentLists {
  readonly sessions: Sessions
  readonly isHttps: boolean
  readonly logger: Logger

  readonly coordinator: ServiceClient
  readonly tokenService: ServiceClient
  readonly gatewayRealms: GatewayRealms
  readonly companyNames: CompanyNames
  /** The client of the sandbox. It is `null` without `SANDBOX_URL`, and every route of it then responds 404. */
  readonly sandbox: SandboxClient | null
  /** Reads series from Prometheus; `null` without `PROMETHEUS_URL`. */
  readonly readRange: ReadRange | null
  /** What the console has read last, and the pages that it has made of this. */
  readonly installation: () => Installation
  readonly now: () => NowView
  readonly services: () => ServicesView
  readonly checkIntegrity: () => Promise<IntegrityView>
  readonly streams: BrowserStreams
  readonly signInLog: SignInLog

  readonly keys: Pick<AccessKeys, 'identify'>
  readonly links: OneTimeLinks
  /** The OpenID provider; `null` if the console has no sign-in at an OpenID provider. */
  readonly openId: OpenIdProvider | null
  readonly flows: FlowSeal
  readonly requests: RequestStore
  readonly delay: SignInDelay
  readonly knownBrowsers: KnownBrowsers
  readonly networkOf: NetworkOf
  readonly onSignIn: (way: SignInWay, outcome: 'accepted' | 'rejected') => void

  readonly sessionHours: number
  /** Whether viewers may read the business data of runs. */
  readonly viewersSeeData: boolean
  readonly commandLine: CommandLine
  readonly consoleUrl: () => string
  readonly tracesUrl: string | null
  readonly grafanaUrl: string | null
}

const READ_PROBLEMS = {
  400: 'invalid',
  401: 'no session',
  403: 'not a page of the console, or another role is needed',
  404: 'there is no such thing',
  502: 'a service rejects the key of the console',
  503: 'a service does not respond',
} as const
const ACTION_PROBLEMS = {
  ...READ_PROBLEMS,
  409: 'the state does not allow the action',
  412: 'it has changed since the person has read it',
  413: 'too large',
  415: 'not application/json',
  424: 'the credential is faulted',
} as const

type Schema = z.ZodType | undefined
type Output<Given extends Schema> = Given extends z.ZodType ? z.output<Given> : undefined

type Result<View extends Schema> = View extends z.ZodType ? z.output<View> : void

/** The person of a request, for the requests to the services. */
export interface Person {
  readonly person: string
}

/** A request of a person, after its role and its parts were checked. */
interface CheckedRequest<Param extends Schema, Query extends Schema, Body extends Schema> {
  readonly c: Context
  readonly by: Person
  readonly param: Output<Param>
  readonly query: Output<Query>
  readonly body: Output<Body>
}

interface ServiceRoute<
  View extends Schema,
  Param extends Schema,
  Query extends Schema,
  Body extends Schema,
> {
  readonly operationId: string
  readonly summary: string
  readonly description?: string
  readonly parameters?: NonNullable<DescribeRouteOptions['parameters']>
  readonly param?: Param
  readonly query?: Query
  readonly body?: Body
  /** The description and the schema of the response, and its status if it is not 200. Without a schema, it is 204. */
  readonly view?: readonly [description: string, schema: View, status?: 201 | 202]
  /** The successful responses, if `view` cannot describe them. */
  readonly responses?: DescribeRouteOptions['responses']
  /** Returns the body of the response, or the whole response. */
  readonly respond: (
    request: CheckedRequest<Param, Query, Body>,
  ) => Promise<Result<View> | Response> | Result<View> | Response
}

/** The problems of a route that reads nothing from a service. */
export const OWN_PROBLEMS = { 401: 'no session', 403: 'not a page of the console' } as const

/**
 * Returns an app without routes, and functions that add routes to it: `read` for viewers and `act` for operators, which
 * send requests to the services, and `withRole` for a route with other problems.
 */
export function guardedRoutes(
  { sessions, isHttps }: Pick<RouteDeps, 'sessions' | 'isHttps'>,
  tag: string,
) {
  const routes = new Hono()
  const withRole =
    (method: 'GET' | 'POST' | 'DELETE', role: Role, problems: Readonly<Record<number, string>>) =>
    <
      View extends Schema = undefined,
      Param extends Schema = undefined,
      Query extends Schema = undefined,
      Body extends Schema = undefined,
    >(
      path: string,
      {
        param,
        query,
        body,
        view,
        responses,
        respond,
        ...described
      }: ServiceRoute<View, Param, Query, Body>,
    ): void => {
      const [description, schema, status = 200] = view ?? ['done']
      const success =
        schema === undefined
          ? { 204: { description } }
          : { [status]: jsonResponse(description, schema) }
      const checks = Object.entries({ param, query, json: body })
      routes.on(
        method,
        path,
        needsRole(sessions, role, isHttps),
        describeRoute({
          ...described,
          tags: [tag],
          responses: { ...(responses ?? success), ...problemResponses(problems) },
        }),
        ...checks.flatMap(([target, given]) =>
          given === undefined ? [] : [validate(target as 'param' | 'query' | 'json', given)],
        ),
        async (c: Context) => {
          // The casts hold, because the schemas of this route have validated these parts of the request.
          const valid = (target: 'param' | 'query' | 'json', given: Schema): never =>
            (given === undefined ? undefined : c.req.valid(target as never)) as never
          const response = await respond({
            c,
            by: { person: sessionOf(c).user },
            param: valid('param', param),
            query: valid('query', query),
            body: valid('json', body),
          })
          if (response instanceof Response) return response
          return response === undefined ? c.body(null, 204) : c.json(response as object, status)
        },
      )
    }
  return {
    routes,
    withRole,
    read: withRole('GET', 'viewer', READ_PROBLEMS),
    /** Reads what only operators may read. */
    readAsOperator: withRole('GET', 'operator', READ_PROBLEMS),
    act: withRole('POST', 'operator', ACTION_PROBLEMS),
  }
}
