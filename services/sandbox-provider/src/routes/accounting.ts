import { intuit } from '@integration-host/shared/provider-profile/intuit'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { parseJsonObject } from '@integration-host/shared/json'
import { describeRoute } from 'hono-openapi'
import { apiErrorBody, type ApiErrorCode, apiErrors } from '../accounting/api-errors.ts'
import { sales } from '../accounting/computed.ts'
import { entityOf } from '../accounting/entities.ts'
import type { BooksResult } from '../accounting/books.ts'
import { companyInfo } from '../company/company-info.ts'
import type { Provider } from '../provider.ts'
import { attachmentRoutes } from './attachments.ts'
import { bearerToken } from './client-authentication.ts'
import { type AnsweredEnv, responsesUnderFaults, underFaults } from './under-faults.ts'

/**
 * The query parameter that identifies a request. If a POST is repeated with the same value, the first response is
 * returned.
 */
const REQUEST_ID = intuit.accounting.repeatablePost?.name ?? ''

const SCOPE = 'com.intuit.quickbooks.accounting'
const COMPANY = '/v3/company/:realm'
const ENTITY = ':entity{[a-z]+}'

/**
 * The routes of the accounting API under `/v3/company/{realm}`: CompanyInfo, batches, change data, reports, files, and
 * objects that clients create, read, update, void, delete, send and query. References are not checked, and no rate limit
 * is enforced. Objects are always JSON, whereas Intuit also has XML: a client that needs XML gets 406 or 415.
 */
export function accountingRoutes(provider: Provider) {
  const { companies, posted, books, preferences } = provider
  const clock = (): Date => new Date(provider.now())
  const rejected = (c: Context, code: ApiErrorCode, detail?: string) =>
    apiErrorResponse(c, code, clock(), detail)
  const respond = (c: Context, result: BooksResult) =>
    'error' in result ? rejected(c, result.error, result.detail) : c.json(result.document)
  const getCompanyInfo = (c: Context): Response => {
    const company = companies.find(c.req.param('realm') ?? '')
    if (company === null || c.req.param('id') !== company.realm) return rejected(c, '500')
    return c.json({ CompanyInfo: companyInfo(company), time: clock().toISOString() })
  }
  const getEntity = (c: Context): Response => {
    const { realm = '', entity: name = '', id = '' } = c.req.param()
    const entity = entityOf(name)
    if (entity === null) return rejected(c, '500')
    const found = posted.find(realm, entity, id)
    if (found === null) return rejected(c, '610')
    return c.json({ [entity]: found, time: clock().toISOString() })
  }
  // Intuit ignores the slash that python-quickbooks appends to the id of an object.
  const getWithSlash = (c: Context): Response =>
    c.req.param('entity') === 'companyinfo' ? getCompanyInfo(c) : getEntity(c)

  return new Hono<AnsweredEnv>()
    .use(
      '/v3/*',
      counted(provider),
      underFaults('api', provider),
      authorized(provider),
      onlyJson(clock),
    )
    .route('/', attachmentRoutes(provider, { rejected, requestIdOf }))
    .get(
      `${COMPANY}/query`,
      operation('query', 'Query; select *, count(*) or a list of members from a kind of object'),
      (c) => respond(c, books.query(c.req.param('realm'), c.req.query('query') ?? '', clock())),
    )
    .post(
      `${COMPANY}/query`,
      operation('postQuery', 'The same query, as text in the body'),
      async (c) => respond(c, books.query(c.req.param('realm'), await c.req.text(), clock())),
    )
    .get(
      `${COMPANY}/cdc`,
      operation('getChanges', 'Change data: entities, changedSince (at most 30 days ago)'),
      (c) => {
        const { entities = '', changedSince = '' } = c.req.query()
        const realm = c.req.param('realm')
        return respond(c, books.changes(realm, { entities, changedSince }, clock()))
      },
    )
    .get(
      `${COMPANY}/reports/:name`,
      operation('getReport', 'The report ProfitAndLoss or AgedReceivables'),
      (c) => {
        const { realm, name } = c.req.param()
        return respond(c, books.report(realm, name, c.req.query(), clock()))
      },
    )
    .post(`${COMPANY}/batch`, operation('batch', 'At most 30 writes and queries'), async (c) => {
      const body = parseJsonObject(await c.req.text())
      if (body === null) return rejected(c, '2010')
      const requestId = requestIdOf(c)
      return respond(c, books.batch(c.req.param('realm'), requestId, body, clock()))
    })
    .get(
      `${COMPANY}/companyinfo/:id`,
      operation('getCompanyInfo', 'CompanyInfo by id'),
      getCompanyInfo,
    )
    .get(
      `${COMPANY}/preferences`,
      operation('getPreferences', 'The preferences of the company'),
      (c) =>
        c.json({ Preferences: preferences.of(c.req.param('realm')), time: clock().toISOString() }),
    )
    .get(`${COMPANY}/${ENTITY}/:id`, operation('getEntity', 'An object by id'), getEntity)
    .get(
      `${COMPANY}/${ENTITY}/:id/`,
      operation('getEntityWithSlash', 'The same object, by id and a slash'),
      getWithSlash,
    )
    .post(
      `${COMPANY}/${ENTITY}`,
      operation(
        'writeEntity',
        'Create an object, update it (Id, SyncToken), void it (operation=void, or operation=update&include=void) or delete it (operation=delete); a repeated requestid returns the first response',
      ),
      async (c) => {
        const entity = entityOf(c.req.param('entity'))
        if (entity === null) return rejected(c, '500')
        const body = parseJsonObject(await c.req.text())
        if (body === null) return rejected(c, '2010')
        const request = {
          realm: c.req.param('realm'),
          entity,
          requestId: requestIdOf(c),
          operation: c.req.query('include') === 'void' ? 'void' : c.req.query('operation') || null,
        }
        return respond(c, books.write(request, body, clock()))
      },
    )
    .post(
      `${COMPANY}/${ENTITY}/:id/send`,
      operation('sendEntity', 'Send a sale by e-mail to sendTo, or to its BillEmail'),
      (c) => {
        const { realm, entity: name, id } = c.req.param()
        const entity = entityOf(name)
        if (entity === null || !sales.has(entity)) return rejected(c, '500')
        const sendTo = c.req.query('sendTo') || null
        const request = { realm, entity, requestId: requestIdOf(c) }
        return respond(c, books.send(request, id, sendTo, clock()))
      },
    )
    .all('/v3/*', (c) => rejected(c, '500'))
}

function apiErrorResponse(c: Context, code: ApiErrorCode, now: Date, detail?: string): Response {
  const error = { ...apiErrors[code], ...(detail !== undefined && { detail }) }
  const { body, contentType } = apiErrorBody(error, c.req.header('Accept'), now)
  c.status(error.status)
  c.header('Content-Type', contentType)
  return c.body(body)
}

/** Rejects requests of clients that need XML, which would otherwise misread JSON as an empty response. */
function onlyJson(clock: () => Date): MiddlewareHandler {
  const rejected = (c: Context, status: 406 | 415, detail: string): Response => {
    const error = {
      ...apiErrors['500'],
      status,
      code: String(status),
      message: 'JSON only',
      detail,
    }
    const { body, contentType } = apiErrorBody(error, c.req.header('Accept'), clock())
    return c.body(body, status, { 'Content-Type': contentType })
  }
  return async (c, next) => {
    const accept = c.req.header('Accept') ?? ''
    if (XML.test(accept) && !/\*\/\*|application\/(?:\*|json)/i.test(accept))
      return rejected(c, 406, 'The sandbox sends JSON only: send Accept: application/json.')
    if (XML.test(c.req.header('Content-Type') ?? ''))
      return rejected(c, 415, 'The sandbox reads JSON only: send Content-Type: application/json.')
    return next()
  }
}

/** Matches the media types of XML, such as `text/xml` and `application/atom+xml`. */
const XML = /[/+]xml\b/i

const requestIdOf = (c: Context): string | null => c.req.query(REQUEST_ID) || null

const realmIn = (c: Context): string => /^\/v3\/company\/([^/]*)/.exec(c.req.path)?.[1] ?? ''

/**
 * Counts the calls by company. Calls for an unknown company are not counted, so that the number of counters stays
 * small.
 */
function counted({ companies, counters }: Provider): MiddlewareHandler {
  return async (c, next) => {
    await next()
    const realm = realmIn(c)
    if (companies.find(realm) === null) return
    counters.count(realm, 'apiCalls')
    if (c.res.status === 401) counters.count(realm, 'apiUnauthorized')
  }
}

function authorized({ grants, now }: Provider): MiddlewareHandler {
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

const operation = (operationId: string, summary: string) =>
  describeRoute({
    operationId,
    tags: ['accounting'],
    summary,
    responses: responsesUnderFaults({
      200: 'the entity, or a query response',
      400: 'ValidationFault, as XML unless application/json is accepted',
      401: 'AuthenticationFailed, 3200: the token is missing, invalid or expired',
      406: 'the request accepts only XML',
      415: 'the body is XML',
      403: 'ApplicationAuthorizationFailed, 3100: the token is for another company',
      429: 'ThrottleExceeded, 3001, as XML',
    }),
  })
