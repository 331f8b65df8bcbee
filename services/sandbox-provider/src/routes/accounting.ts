import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { describeRoute } from 'hono-openapi'
import {
  authenticationFailed,
  authorizationFailed,
  validationFault,
} from '../accounting/documents.ts'
import type { PostedEntities } from '../accounting/posted-entities.ts'
import type { Companies } from '../company/companies.ts'
import { companyInfo } from '../company/company-info.ts'
import type { Grants } from '../grant/grants.ts'
import { bearerToken } from './client-authentication.ts'
import {
  type AnsweredEnv,
  responsesUnderFaults,
  underFaults,
  type UnderFaultsDeps,
} from './under-faults.ts'

export interface AccountingDeps extends UnderFaultsDeps {
  readonly companies: Companies
  readonly grants: Grants
  readonly posted: PostedEntities
}

const SCOPE = 'com.intuit.quickbooks.accounting'
const COMPANY = '/v3/company/:realm'

/** The accounting API under `/v3/company/{realm}`. JSON whatever is accepted, but for the throttle's XML. */
export function accountingRoutes(deps: AccountingDeps) {
  const { companies, posted, counters } = deps
  const clock = (): Date => new Date(deps.now())

  const query = (c: Context, statement: string) => {
    // Case and white space do not count.
    const words = statement.trim().split(/\s+/).join(' ').toLowerCase()
    const company = companies.find(c.req.param('realm') ?? '')
    if (words !== 'select * from companyinfo' || company === null) {
      const error = {
        Message: 'Error parsing query',
        Detail: 'QueryParserError: the sandbox answers select * from CompanyInfo',
        code: '4000',
      }
      return c.json(validationFault(error, clock()), 400)
    }
    return c.json({
      QueryResponse: { CompanyInfo: [companyInfo(company)], maxResults: 1 },
      time: clock().toISOString(),
    })
  }

  const unsupported = (c: Context) => {
    const error = {
      Message: 'Unsupported Operation',
      Detail: 'The sandbox does not have this operation.',
      code: '500',
    }
    return c.json(validationFault(error, clock()), 400)
  }

  return new Hono<AnsweredEnv>()
    .use('/v3/*', counted(deps), underFaults('api', deps), authorized(deps))
    .get(`${COMPANY}/query`, describeRoute(operation('Query; select * from CompanyInfo')), (c) =>
      query(c, c.req.query('query') ?? ''),
    )
    .post(
      `${COMPANY}/query`,
      describeRoute(operation('The same query, as text in the body')),
      async (c) => query(c, await c.req.text()),
    )
    .get(`${COMPANY}/companyinfo/:id`, describeRoute(operation('CompanyInfo by id')), (c) => {
      const company = companies.find(c.req.param('realm'))
      if (company === null || c.req.param('id') !== company.realm) return unsupported(c)
      return c.json({ CompanyInfo: companyInfo(company), time: clock().toISOString() })
    })
    .post(
      `${COMPANY}/:entity{[a-z]+}`,
      describeRoute(operation('Create an entity; a repeated requestid creates nothing')),
      async (c) => {
        const { realm, entity } = c.req.param()
        const body = await readObject(c)
        if (body === null) {
          const error = {
            Message: 'Request has invalid or unsupported property',
            Detail: 'The body must be a JSON object.',
            code: '2010',
          }
          return c.json(validationFault(error, clock()), 400)
        }
        const requestId = c.req.query('requestid') || null
        const { document, isPlayedBack } = posted.post({ realm, entity, requestId }, body, clock())
        counters.count(realm, isPlayedBack ? 'playedBack' : 'entitiesCreated')
        return c.json(document)
      },
    )
    .all('/v3/*', unsupported)
}

const realmIn = (c: Context): string => /^\/v3\/company\/([^/]*)/.exec(c.req.path)?.[1] ?? ''

/** Counts calls that name a company; unknown ones are not counted, so that the table stays small. */
function counted({ companies, counters }: AccountingDeps): MiddlewareHandler {
  return async (c, next) => {
    await next()
    const realm = realmIn(c)
    if (companies.find(realm) === null) return
    counters.count(realm, 'apiCalls')
    if (c.res.status === 401) counters.count(realm, 'apiUnauthorized')
  }
}

function authorized({ grants, now }: AccountingDeps): MiddlewareHandler {
  return async (c, next) => {
    const access = grants.accessToken(bearerToken(c) ?? '')
    if (access === null) {
      c.header('WWW-Authenticate', 'Bearer realm="Intuit", error="invalid_token"')
      return c.json(authenticationFailed(new Date(now())), 401)
    }
    if (access.realm !== realmIn(c) || !access.scope.includes(SCOPE)) {
      return c.json(authorizationFailed(new Date(now())), 403)
    }
    return next()
  }
}

async function readObject(c: Context): Promise<Readonly<Record<string, unknown>> | null> {
  try {
    const body: unknown = JSON.parse(await c.req.text())
    const isObject = typeof body === 'object' && body !== null && !Array.isArray(body)
    return isObject ? (body as Readonly<Record<string, unknown>>) : null
  } catch {
    return null
  }
}

const operation = (summary: string) => ({
  tags: ['accounting'],
  summary,
  responses: responsesUnderFaults({
    200: 'the entity, or a query response',
    400: 'ValidationFault',
    401: 'AuthenticationFailed, 3200: the token is missing, bad or expired',
    403: 'AuthorizationFailed, 3100: the token is for another company',
    429: 'ThrottleExceeded, 3001, as XML',
  }),
})
