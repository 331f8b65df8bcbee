/**
 * The stages of the demo: connect a company, read its CompanyInfo, queue an order, print each step as it completes,
 * replay the order. The demo uses only HTTP, so it can run against any installation with the sandbox provider.
 */
import type { HeaderView, TransactionView } from '@integration-host/shared/contracts/transaction'

export interface Installation {
  readonly tokenService: string
  readonly accountingGateway: string
  readonly coordinator: string
  readonly demoApi: string
  readonly serviceKey: string
}

export interface Narrator {
  stage(title: string): void
  line(text: string): void
}

export interface Story {
  readonly realm: string
  readonly number: string
}

/** A stage of the demo failed. The message names the stage and describes the response. */
export class StoryFailed extends Error {
  override readonly name = 'StoryFailed'
}

/** The company of the sandbox provider that the demo and `integration-host dev` connect. */
export const COMPANY = { realm: '4620816365291', name: 'Rosewood Interiors' }
const PROCESS = 'OrderProcess'
const STAGE_DEADLINE_MS = 30_000

/**
 * Checks that every service responds and accepts the key. The requests of this check change nothing.
 *
 * @throws {StoryFailed} if a service fails this check; the message names the first such service.
 */
export async function requireUsable(at: Installation): Promise<void> {
  const checks = [
    { service: 'token-service', url: credentialUrl(at), headers: keyed(at) },
    // No company has the realm `0`, so the gateway does not call the accounting API.
    { service: 'accounting-gateway', url: companyUrl(at, '0'), headers: keyed(at) },
    { service: 'coordinator', url: transactionUrl(at, '66'), headers: keyed(at) },
    { service: 'demo-api', url: `${at.demoApi}/health/live`, headers: {} },
  ]
  for (const { service, url, headers } of checks) {
    const { origin } = new URL(url)
    const response = await fetch(url, { headers, redirect: 'manual' }).catch((error: unknown) => {
      throw new StoryFailed(`${service} does not respond at ${origin}`, { cause: error })
    })
    await response.body?.cancel()
    if (response.status === 401 || response.status === 403)
      throw new StoryFailed(
        `${service} at ${origin} rejects the service key (${response.status}): it belongs to another installation, or lacks a scope`,
      )
    if (!response.ok && response.status !== 404)
      throw new StoryFailed(`${service} at ${origin} responded with ${response.status}`)
  }
}

/**
 * Runs the whole demo against an installation, and prints each step.
 *
 * @throws {StoryFailed} if a stage of the demo fails.
 */
export async function tellStory(at: Installation, narrator: Narrator): Promise<Story> {
  narrator.stage('Connecting a company through the authorization redirect')
  await connectCompany(at, narrator)

  narrator.stage('Reading its CompanyInfo through the accounting gateway')
  await readCompanyInfo(at, narrator)

  const number = await freeNumber(at)
  narrator.stage(`Queueing order ${number}`)
  narrator.line(await text(`${at.demoApi}/queue?number=${number}`))
  await watch(at, number, 0, narrator)

  narrator.stage(`Replaying order ${number}`)
  narrator.line(await text(`${at.demoApi}/replay?number=${number}`))
  await watch(at, number, 1, narrator)
  return { realm: COMPANY.realm, number }
}

/**
 * Connects the company as a browser would: follows the redirects one by one, and sends the cookie that binds the
 * authorization to the browser.
 *
 * @throws {StoryFailed} if a service does not redirect.
 */
export async function connectCompany(at: Installation, narrator: Narrator): Promise<void> {
  const first = await hop(`${at.tokenService}/authorize`)
  // token-service sets the cookie only at the origin of REDIRECT. At any other origin, its response sets no cookie and
  // redirects the browser to the origin of REDIRECT.
  const isBound = first.headers.getSetCookie().length > 0
  const started = isBound ? first : await hop(locationOf(first))
  const cookie = started.headers
    .getSetCookie()
    .map((header) => header.split(';')[0])
    .join('; ')
  narrator.line('token-service → provider: state and nonce, bound to this browser')
  const consent = new URL(locationOf(started))
  consent.searchParams.set('sandbox_company', `${COMPANY.realm}:${COMPANY.name}`)
  const granted = await hop(consent.href)
  narrator.line(`provider → token-service: ${COMPANY.name} authorized, code delivered`)
  const finished = await hop(locationOf(granted), { headers: { Cookie: cookie } })
  locationOf(finished)
  const credential = await json<{ Name: string; Expiry: string; Version: number }>(
    at,
    credentialUrl(at),
  )
  narrator.line(
    `${credential.Name} stored, version ${credential.Version}, access token valid until ${credential.Expiry}`,
  )
}

async function readCompanyInfo(at: Installation, narrator: Narrator): Promise<void> {
  const response = await json<{
    QueryResponse: { CompanyInfo: { CompanyName: string; Country: string }[] }
  }>(at, companyUrl(at, COMPANY.realm))
  const [company] = response.QueryResponse.CompanyInfo
  if (company === undefined)
    throw new StoryFailed('the provider returned no CompanyInfo for the connected company')
  narrator.line(
    `${company.CompanyName}, ${company.Country}: the access token never left the gateway`,
  )
}

/** Returns the lowest order number that no earlier run has used, starting at 66. */
async function freeNumber(at: Installation): Promise<string> {
  for (let number = 66; ; number++) {
    const response = await fetch(transactionUrl(at, String(number)), { headers: keyed(at) })
    await response.body?.cancel()
    if (response.status === 404) return String(number)
    if (!response.ok) throw new StoryFailed(`the coordinator responded with ${response.status}`)
  }
}

/** Prints each step when it completes, until the run has ended. */
async function watch(
  at: Installation,
  number: string,
  replayId: number,
  narrator: Narrator,
): Promise<void> {
  const told = new Set<string>()
  const deadline = Date.now() + STAGE_DEADLINE_MS
  for (;;) {
    const run = await json<TransactionView>(at, `${transactionUrl(at, number)}?replay=${replayId}`)
    for (const item of run.Items) {
      if (item.Status !== 'Completed' || told.has(item.StepName)) continue
      told.add(item.StepName)
      narrator.line(
        `step ${item.StepName.padEnd(6)} ${item.ResponseStatus ?? 'done'}  ${item.ResponseBody ?? ''}`.trimEnd(),
      )
    }
    if (run.Status === 'Completed')
      return narrator.line(`run ${replayId} of ${number}: ${run.Status}`)
    if (isOver(run))
      throw new StoryFailed(
        `order ${number} is ${run.Status}: ${run.LastError ?? 'no reason given'}`,
      )
    if (Date.now() > deadline)
      throw new StoryFailed(`order ${number} is still ${run.Status} at step ${run.StepName}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const isOver = ({ Status }: HeaderView): boolean => Status === 'Failed' || Status === 'Cancelled'
const keyed = (at: Installation): Record<string, string> => ({
  Authorization: `Bearer ${at.serviceKey}`,
})
const credentialUrl = (at: Installation): string =>
  `${at.tokenService}/credentials/ACC-${COMPANY.realm}`
const companyUrl = (at: Installation, realm: string): string =>
  `${at.accountingGateway}/v3/company/${realm}/query?query=${encodeURIComponent('select * from CompanyInfo')}`
const transactionUrl = (at: Installation, number: string): string =>
  `${at.coordinator}/processes/${PROCESS}/transactions/${number}`

async function hop(url: string, init: RequestInit = {}): Promise<Response> {
  return fetch(url, { ...init, redirect: 'manual' })
}

function locationOf(response: Response): string {
  const location = response.headers.get('Location')
  // The query of this URL may contain an authorization code, so only the origin is shown.
  if (location === null)
    throw new StoryFailed(
      `${new URL(response.url).origin} responded with ${response.status} instead of a redirect`,
    )
  return new URL(location, response.url).href
}

async function text(url: string): Promise<string> {
  const response = await fetch(url)
  const body = await response.text()
  if (!response.ok) throw new StoryFailed(`${url} responded with ${response.status}: ${body}`)
  return body
}

async function json<T>(at: Installation, url: string): Promise<T> {
  const response = await fetch(url, { headers: keyed(at) })
  const body = await response.text()
  if (!response.ok) throw new StoryFailed(`${url} responded with ${response.status}: ${body}`)
  return JSON.parse(body) as T
}
