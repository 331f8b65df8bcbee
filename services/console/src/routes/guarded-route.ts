/** The routes with which the pages read from the services, and change something at the services. */
import type { Role } from '@integration-host/shared/access/scope'
import { jsonResponse, problemResponses, validate } from '@integration-host/shared/http/service-app'
import type { Context, Handler } from 'hono'
import { describeRoute, type DescribeRouteOptions } from 'hono-openapi'
import type { z } from 'zod'
import type { Sessions } from '../session/sessions.ts'
import { needsRole, sessionOf } from './browser-guard.ts'

/** What every route needs that requires a session. */
export interface GuardDeps {
  readonly sessions: Sessions
  readonly isHttps: boolean
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

/**
 * Returns functions that create the handlers of routes: `read` for viewers and `act` for operators, which send requests to
 * the services, and `withRole` for a route with other problems.
 */
export function guardedRoutes({ sessions, isHttps }: GuardDeps, tag: string) {
  const withRole =
    (role: Role, problems: Readonly<Record<number, string>>) =>
    <
      View extends Schema = undefined,
      Param extends Schema = undefined,
      Query extends Schema = undefined,
      Body extends Schema = undefined,
    >({
      param,
      query,
      body,
      view,
      responses,
      respond,
      ...described
    }: ServiceRoute<View, Param, Query, Body>): [Handler, ...Handler[]] => {
      const [description, schema, status = 200] = view ?? ['done']
      const success =
        schema === undefined
          ? { 204: { description } }
          : { [status]: jsonResponse(description, schema) }
      const checks = Object.entries({ param, query, json: body })
      return [
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
      ]
    }
  return {
    withRole,
    read: withRole('viewer', READ_PROBLEMS),
    /** Reads what only operators may read. */
    readAsOperator: withRole('operator', READ_PROBLEMS),
    act: withRole('operator', ACTION_PROBLEMS),
  }
}
