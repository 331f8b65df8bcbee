/** Actions that a user or an application performs on a running system, and functions that read the results. */
import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import type { System } from '../system.ts'

/** The state of a browser after the provider's redirect and before the callback to token-service. */
export interface GrantedConsent {
  /** The callback URL with the parameters that the provider added. */
  readonly callback: URL
  /** The authorization cookie as the value of a `Cookie` header. */
  readonly cookie: string
  readonly follow: () => Promise<Response>
}

/** Obtains the consent of a company's owner as a browser does: follows each redirect and keeps the cookie. */
export async function consentInBrowser(
  system: System,
  realm: string,
  company = 'Test Company',
): Promise<GrantedConsent> {
  const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
  const cookies = started.headers.getSetCookie().map((header) => header.split(';')[0])
  const cookie = cookies.join('; ')
  return consentAt(started.headers.get('Location') ?? '', realm, company, cookie)
}

/** Obtains the consent of a company's owner with a link that an application has requested with the service key. */
export async function consentByLink(system: System, realm: string): Promise<GrantedConsent> {
  const started = await system.call(`${system.url('token-service')}/authorizations`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: '{}',
  })
  const { url } = (await started.json()) as { url: string }
  return consentAt(url, realm, 'Test Company', '')
}

async function consentAt(
  url: string,
  realm: string,
  company: string,
  cookie: string,
): Promise<GrantedConsent> {
  const consent = new URL(url)
  consent.searchParams.set('sandbox_company', `${realm}:${company}`)
  const granted = await fetch(consent, { redirect: 'manual' })
  const callback = new URL(granted.headers.get('Location') ?? '')
  return {
    callback,
    cookie,
    follow: () => fetch(callback, { redirect: 'manual', headers: { Cookie: cookie } }),
  }
}

/** Connects a company. Resolves with the response to the callback. */
export const connectCompany = async (system: System, realm: string): Promise<Response> =>
  (await consentInBrowser(system, realm)).follow()

export const companyInfoUrl = (system: System, realm: string): string =>
  `${system.url('accounting-gateway')}/v3/company/${realm}/query?query=${encodeURIComponent('select * from CompanyInfo')}`

/** Sends a GET request to the demo API, which responds in plain text. */
export async function requestDemoApi(
  system: System,
  path: string,
): Promise<{ status: number; text: string }> {
  const response = await fetch(`${system.url('demo-api')}${path}`)
  return { status: response.status, text: await response.text() }
}

export const transactionUrl = (system: System, number: string): string =>
  `${system.url('coordinator')}/processes/OrderProcess/transactions/${encodeURIComponent(number)}`

/** Resolves with the run when it has reached `status`. */
export const waitForRun = (
  system: System,
  number: string,
  replayId: number,
  status: TransactionView['Status'],
): Promise<TransactionView> =>
  eventually(async () => {
    const response = await system.call(`${transactionUrl(system, number)}?replay=${replayId}`)
    expect(response.status).toBe(200)
    const run = (await response.json()) as TransactionView
    expect(run.Status).toBe(status)
    return run
  })
