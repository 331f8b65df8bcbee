/** The steps that call the accounting API: a query, a repeated create, and a call with an invalid token. */
import { randomUUID } from 'node:crypto'
import { asObject } from '@integration-host/shared/json'
import type { ProviderResponse } from './provider-call.ts'
import { asDocumented, differs, failed, judged, type Line, skipped } from './report.ts'
import { callAccounting, type Session } from './session.ts'
import { described, faultCode, formOf } from './wording.ts'

const COMPANY_INFO = { query: 'select * from CompanyInfo' }

export async function* checkQuery(session: Session): AsyncGenerator<Line> {
  const response = await callAccounting(session, 'query', { query: COMPANY_INFO })
  const companies = asObject(response.json?.['QueryResponse'])?.['CompanyInfo']
  yield response.status !== 200 || !Array.isArray(companies)
    ? failed('query', described(response, session.settings.profile))
    : judged('query', companies.length === 1, `200, CompanyInfo: ${companies.length}`)
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
  // The coordinator repeats a step after a crash. A provider that does not recognise the repeated request by its
  // `requestid` would create a second customer.
  if (repeated === null) yield differs('create again', described(again, profile))
  else if (repeated.Id === created.Id) yield asDocumented('create again', 'the same Id')
  else yield failed('create again', 'another Id: the customer was created twice')

  if (!(await session.confirm(`Make customer '${name}' inactive?`))) {
    yield skipped('make inactive', `${session.notConfirmed}: customer '${name}' stays`)
    return
  }
  const isTwice = repeated !== null && repeated.Id !== created.Id
  for (const { Id, SyncToken } of isTwice ? [created, repeated] : [created]) {
    const update = { Id, SyncToken, sparse: true, Active: false }
    const updated = await post(session, randomUUID(), update)
    yield customerOf(updated)?.Active === false
      ? asDocumented('make inactive', '200, inactive')
      : failed('make inactive', `${described(updated, profile)}: customer '${name}' stays`)
  }
}

/** Posts a customer. If the provider knows the idempotency key `key`, it returns the first response. */
function post(session: Session, key: string, body: object): Promise<ProviderResponse> {
  const mark = session.settings.profile.accounting.repeatablePost
  if (mark === null) throw new Error('the step is skipped for a profile without repeatable POSTs')
  const marked = { [mark.name]: key }
  return callAccounting(session, 'customer', {
    body,
    ...(mark.in === 'query' ? { query: marked } : { headers: marked }),
  })
}

function customerOf({ status, json }: ProviderResponse) {
  const { Id, SyncToken = '0', Active } = asObject(json?.['Customer']) ?? {}
  return status === 200 && typeof Id === 'string' ? { Id, SyncToken, Active } : null
}

export async function* checkAccessToken(session: Session): AsyncGenerator<Line> {
  const { settings, expectations, tokens, redaction } = session
  // The last character is kept, because in base64 its lowest bits may be unused.
  const token = tokens?.access ?? ''
  const at = Math.floor(token.length / 2)
  const accessToken = `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`
  redaction.add(accessToken)
  const response = await callAccounting(session, 'query', { query: COMPANY_INFO, accessToken })
  const seen = described(response, settings.profile)
  const { rejectedTokenCode } = expectations
  const isExpected =
    response.status === 401 &&
    (rejectedTokenCode === null ||
      (faultCode(response, settings.profile) === rejectedTokenCode &&
        ['JSON with fault', 'XML'].includes(formOf(response))))
  yield response.status === 200
    ? failed('changed access token', `${seen}: accepted`)
    : judged('changed access token', isExpected, seen)
}
