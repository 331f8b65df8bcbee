import type { TransactionView } from '@integration-host/shared/contracts/transaction'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { expect } from 'vitest'
import type { System } from './system.ts'

/** Authorizes a company as a browser would: redirect by redirect, keeping the cookie. Resolves with the last answer. */
export async function connectCompany(system: System, realm: string): Promise<Response> {
  const started = await fetch(`${system.url('token-service')}/authorize`, { redirect: 'manual' })
  const cookie = started.headers.getSetCookie().map((header) => header.split(';')[0])
  const consent = new URL(started.headers.get('Location') ?? '')
  consent.searchParams.set('sandbox_company', `${realm}:Test Company`)
  const granted = await fetch(consent, { redirect: 'manual' })
  return fetch(granted.headers.get('Location') ?? '', {
    redirect: 'manual',
    headers: { Cookie: cookie.join('; ') },
  })
}

export const companyInfoUrl = (system: System, realm: string): string =>
  `${system.url('accounting-gateway')}/v3/company/${realm}/query?query=${encodeURIComponent('select * from CompanyInfo')}`

/** What the demo API says in text. */
export async function ask(system: System, path: string): Promise<{ status: number; text: string }> {
  const answer = await fetch(`${system.url('demo-api')}${path}`)
  return { status: answer.status, text: await answer.text() }
}

export const transactionUrl = (system: System, number: string): string =>
  `${system.url('coordinator')}/processes/OrderProcess/transactions/${encodeURIComponent(number)}`

/** The run once it has come to `status`. */
export const runOf = (
  system: System,
  number: string,
  replayId: number,
  status: TransactionView['Status'],
): Promise<TransactionView> =>
  eventually(async () => {
    const answer = await system.call(`${transactionUrl(system, number)}?replay=${replayId}`)
    expect(answer.status).toBe(200)
    const run = (await answer.json()) as TransactionView
    expect(run.Status).toBe(status)
    return run
  })
