/** The steps that call the accounting API: a query, a repeated create, and a call with an invalid token. */
import { randomUUID } from 'node:crypto'
import type { RepeatablePost } from '@integration-host/shared/provider-profile/provider-profile'
import { asObject } from '@integration-host/shared/json'
import type { ProviderResponse } from './provider-call.ts'
import { asDocumented, differs, failed, judged, type Line, skipped } from './report.ts'
import { callAccounting, type Session } from './session.ts'
import { described, faultCode, formOf } from './wording.ts'

const QUERY = 'select * from CompanyInfo'
const MINOR_VERSION = '75' // the lowest minor version of the API that Intuit supports since August 2025

const pathOf = (resource: string, parameters: Readonly<Record<string, string>>): string =>
  `${resource}?${new URLSearchParams({ ...parameters, minorversion: MINOR_VERSION }).toString()}`

export async function* checkQuery(session: Session): AsyncGenerator<Line> {
  const response = await callAccounting(session, pathOf('query', { query: QUERY }))
  const companies = asObject(response.json?.['QueryResponse'])?.['CompanyInfo']
  if (response.status !== 200 || !Array.isArray(companies)) {
    yield failed('query', described(response, session.settings.profile))
    return
  }
  yield judged('query', companies.length === 1, `200, CompanyInfo: ${companies.length}`)
}

interface Customer {
  readonly id: string
  readonly syncToken: string
  readonly isActive: boolean
}

export async function* checkCreate(session: Session): AsyncGenerator<Line> {
  const { profile } = session.settings
  const name = `Integration Host check ${randomUUID().slice(0, 8)}`
  const key = randomUUID()
  const first = await post(session, key, { DisplayName: name })
  const created = customerOf(first)
  if (created === null) {
    yield failed('create', described(first, profile))
    return
  }
  yield asDocumented('create', `200, customer '${name}'`)

  const again = await post(session, key, { DisplayName: name })
  const repeated = customerOf(again)
  if (repeated === null) yield differs('create again', described(again, profile))
  else if (repeated.id === created.id) yield asDocumented('create again', 'the same Id')
  // The coordinator repeats a step after a crash. A provider that does not recognise the repeated request by its
  // `requestid` would create a second customer.
  else yield failed('create again', 'another Id: the customer was created twice')

  if (!(await session.confirm(`Make customer '${name}' inactive?`))) {
    yield skipped('make inactive', `${session.notConfirmed}: customer '${name}' stays`)
    return
  }
  const isTwice = repeated !== null && repeated.id !== created.id
  for (const customer of isTwice ? [created, repeated] : [created]) {
    const { id: Id, syncToken: SyncToken } = customer
    const update = { Id, SyncToken, sparse: true, Active: false }
    const updated = await post(session, randomUUID(), update)
    yield customerOf(updated)?.isActive === false
      ? asDocumented('make inactive', '200, inactive')
      : failed('make inactive', `${described(updated, profile)}: customer '${name}' stays`)
  }
}

/**
 * Posts a customer with the idempotency key `key`. If the request is repeated with this key, the provider returns the
 * first response.
 */
function post(session: Session, key: string, customer: object): Promise<ProviderResponse> {
  // The cast is sound, because `blocked` skips the step if `repeatablePost` is null.
  const mark = session.settings.profile.accounting.repeatablePost as RepeatablePost
  const [parameters, headers] =
    mark.in === 'query' ? [{ [mark.name]: key }, {}] : [{}, { [mark.name]: key }]
  return callAccounting(session, pathOf('customer', parameters), { body: customer }, headers)
}

function customerOf({ status, json }: ProviderResponse): Customer | null {
  const { Id, SyncToken, Active } = asObject(json?.['Customer']) ?? {}
  if (status !== 200 || typeof Id !== 'string') return null
  return {
    id: Id,
    syncToken: typeof SyncToken === 'string' ? SyncToken : '0',
    isActive: Active !== false,
  }
}

export async function* checkAccessToken(session: Session): AsyncGenerator<Line> {
  const { settings, expectations, tokens, redaction } = session
  const accessToken = withOneCharacterChanged(tokens?.access ?? '')
  redaction.add(accessToken)
  const response = await callAccounting(session, pathOf('query', { query: QUERY }), { accessToken })
  const seen = described(response, settings.profile)
  if (response.status === 200) {
    yield failed('changed access token', `${seen}: accepted`)
    return
  }
  const { rejectedTokenCode } = expectations
  const isExpected =
    response.status === 401 &&
    (rejectedTokenCode === null ||
      (faultCode(response, settings.profile) === rejectedTokenCode &&
        ['JSON with fault', 'XML'].includes(formOf(response))))
  yield judged('changed access token', isExpected, seen)
}

/**
 * Returns the token with one character in the middle changed. The last character is kept, because in base64 its lowest
 * bits may be unused.
 */
function withOneCharacterChanged(token: string): string {
  const at = Math.floor(token.length / 2)
  return `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`
}
