import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { parseJsonObject } from '@integration-host/shared/json'
import { describeRoute } from 'hono-openapi'
import { apiErrorBody, type ApiErrorCode, apiErrors } from '../accounting/api-errors.ts'
import { entityOf } from '../accounting/entities.ts'
import type { Body, Posted, PostedEntities } from '../accounting/posted-entities.ts'
import { parseQuery } from '../accounting/query.ts'
import type { Companies } from '../company/companies.ts'
import { companyInfo } from '../company/company-info.ts'
import type { RealmCounter } from '../control/counters.ts'
import type { Grants } from '../grant/grants.ts'
import type { OnChange } from '../webhooks/book-change.ts'
import { reportedEntity } from '../webhooks/reported-entity.ts'
import { bearerToken } from './client-authentication.ts'
import {
  type AnsweredEnv,
  responsesUnderFaults,
  underFaults,
  type UnderFaultsDeps,
} from './under-faults.ts'

/** The query parameter that identifies a request. A repeated POST with the same value returns the first response. */
const REQUEST_ID = intuit.accounting.repeatablePost?.name ?? ''

export interface AccountingDeps extends UnderFaultsDeps {
  readonly companies: Companies
  readonly grants: Grants
  readonly posted: PostedEntities
  /** Called after each change of an entity whose changes the provider reports by webhook. */
  readonly onChange: OnChange
}

const SCOPE = 'com.intuit.quickbooks.accounting'
const COMPANY = '/v3/company/:realm'
const ENTITY = ':entity{[a-z]+}'

/**
 * The routes of the accounting API under `/v3/company/{realm}`: CompanyInfo, and entities that can be created, read,
 * updated, deleted and listed. References and amounts are not checked, and no rate limit is enforced. Entities are
 * always JSON, whereas Intuit sends XML unless `Accept` names JSON.
 */
export function accountingRoutes(deps: AccountingDeps) {
  const { companies, posted, counters } = deps
  const clock = (): Date => new Date(deps.now())
  const rejected = (c: Context, code: ApiErrorCode) => apiErrorResponse(c, code, clock())

  const query = (c: Context, statement: string) => {
    const parsed = parseQuery(statement)
    const found = parsed && entitiesOf(c.req.param('realm') ?? '', parsed.entity)
    if (parsed === null || found === null) return rejected(c, '4000')
    const time = clock().toISOString()
    const { isCount, startPosition, maxResults } = parsed
    if (isCount) return c.json({ QueryResponse: { totalCount: found.all.length }, time })
    const page = found.all.slice(startPosition - 1, startPosition - 1 + maxResults)
    if (page.length === 0) return c.json({ QueryResponse: {}, time })
    return c.json({
      QueryResponse: { [found.name]: page, startPosition, maxResults: page.length },
      time,
    })
  }

  function entitiesOf(
    realm: string,
    name: string,
  ): { readonly name: string; readonly all: readonly Body[] } | null {
    if (name.toLowerCase() === 'companyinfo') {
      const company = companies.find(realm)
      return company && { name: 'CompanyInfo', all: [companyInfo(company)] }
    }
    const entity = entityOf(name)
    return entity && { name: entity, all: posted.list(realm, entity) }
  }

  return new Hono<AnsweredEnv>()
    .use('/v3/*', counted(deps), underFaults('api', deps), authorized(deps))
    .get(
      `${COMPANY}/query`,
      describeRoute(
        operation('query', 'Query; select * or count(*) from an entity, without conditions'),
      ),
      (c) => query(c, c.req.query('query') ?? ''),
    )
    .post(
      `${COMPANY}/query`,
      describeRoute(operation('postQuery', 'The same query, as text in the body')),
      async (c) => query(c, await c.req.text()),
    )
    .get(
      `${COMPANY}/companyinfo/:id`,
      describeRoute(operation('getCompanyInfo', 'CompanyInfo by id')),
      (c) => {
        const company = companies.find(c.req.param('realm'))
        if (company === null || c.req.param('id') !== company.realm) return rejected(c, '500')
        return c.json({ CompanyInfo: companyInfo(company), time: clock().toISOString() })
      },
    )
    .get(
      `${COMPANY}/${ENTITY}/:id`,
      describeRoute(operation('getEntity', 'A posted entity by id')),
      (c) => {
        const entity = entityOf(c.req.param('entity'))
        if (entity === null) return rejected(c, '500')
        const found = posted.find(c.req.param('realm'), entity, c.req.param('id'))
        if (found === null) return rejected(c, '610')
        return c.json({ [entity]: found, time: clock().toISOString() })
      },
    )
    .post(
      `${COMPANY}/${ENTITY}`,
      describeRoute(
        operation(
          'writeEntity',
          'Create an entity, update it (Id, SyncToken) or delete it (operation=delete); a repeated requestid returns the first response',
        ),
      ),
      async (c) => {
        const realm = c.req.param('realm')
        const entity = entityOf(c.req.param('entity'))
        if (entity === null) return rejected(c, '500')
        const body = parseJsonObject(await c.req.text())
        if (body === null) return rejected(c, '2010')
        const requestId = c.req.query(REQUEST_ID) || null
        const outcome = posted.post(
          { realm, entity, requestId, operation: c.req.query('operation') || null },
          body,
          clock(),
        )
        if (outcome.kind === 'rejected') return rejected(c, outcome.error)
        const counter = COUNTERS[outcome.kind]
        if (counter !== null) counters.count(realm, counter)
        reportChange(deps, realm, entity, outcome)
        return c.json(outcome.document)
      },
    )
    .all('/v3/*', (c) => rejected(c, '500'))
}

const OPERATIONS = { created: 'create', updated: 'update', deleted: 'delete' } as const

function reportChange(
  { onChange, now }: Pick<AccountingDeps, 'onChange' | 'now'>,
  realm: string,
  name: string,
  outcome: Exclude<Posted, { readonly kind: 'rejected' }>,
): void {
  const entity = reportedEntity(name)
  if (outcome.kind === 'played-back' || entity === null) return
  const { Id, MetaData } = outcome.document[name] as {
    readonly Id: string
    readonly MetaData?: { readonly LastUpdatedTime: string }
  }
  const changedAt = MetaData === undefined ? now() : Date.parse(MetaData.LastUpdatedTime)
  onChange({ realm, entity, id: Id, operation: OPERATIONS[outcome.kind], changedAt })
}

const COUNTERS: Readonly<Record<Exclude<Posted['kind'], 'rejected'>, RealmCounter | null>> = {
  created: 'entitiesCreated',
  updated: null,
  deleted: null,
  'played-back': 'playedBack',
}

function apiErrorResponse(c: Context, code: ApiErrorCode, now: Date): Response {
  const error = apiErrors[code]
  const { body, contentType } = apiErrorBody(error, c.req.header('Accept'), now)
  c.status(error.status)
  c.header('Content-Type', contentType)
  return c.body(body)
}

const realmIn = (c: Context): string => /^\/v3\/company\/([^/]*)/.exec(c.req.path)?.[1] ?? ''

/** Counts the calls by company. Calls that name an unknown company are not counted, so that the table stays small. */
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
      return apiErrorResponse(c, '3200', new Date(now()))
    }
    if (access.realm !== realmIn(c) || !access.scope.includes(SCOPE)) {
      return apiErrorResponse(c, '3100', new Date(now()))
    }
    return next()
  }
}

const operation = (operationId: string, summary: string) => ({
  operationId,
  tags: ['accounting'],
  summary,
  responses: responsesUnderFaults({
    200: 'the entity, or a query response',
    400: 'ValidationFault, as XML unless application/json is accepted',
    401: 'AuthenticationFailed, 3200: the token is missing, invalid or expired',
    403: 'ApplicationAuthorizationFailed, 3100: the token is for another company',
    429: 'ThrottleExceeded, 3001, as XML',
  }),
})
