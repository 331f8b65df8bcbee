/** The steps of verify-provider, in order. Each step declares its preconditions and its prompt, and yields results. */
import { UsageError } from '../exit-code.ts'
import { checkAccessToken, checkCreate, checkQuery } from './accounting-steps.ts'
import { compareDocument, isProviderHost, readKeys, usableDocument } from './discovery.ts'
import { PRODUCTION_ACCOUNTING_HOST } from './expectations.ts'
import { checkCallback, checkPreviousToken, checkRefresh, checkRevocation } from './grant-steps.ts'
import { checkIdToken } from './id-token.ts'
import { checkKeyPair, NoResponse } from './provider-call.ts'
import {
  asDocumented,
  differs,
  failed,
  judged,
  type Line,
  type ReportedLine,
  skipped,
} from './report.ts'
import { hasOpenId, NoCallback, type Session } from './session.ts'
import { address, described, names } from './wording.ts'

export interface Step {
  readonly name: string
  /** The prompt before a step that changes something. */
  readonly question?: string
  /** Returns the reason to skip the step; a value that is not a text if the step can run. */
  readonly blocked: (session: Session) => string | false | null
  /** Yields each line as soon as it is known. The report keeps these lines even if the step fails later. */
  readonly run: (session: Session) => AsyncGenerator<Line>
}

const needsDocument = ({ document }: Session): string | false =>
  document === null && 'needs a usable discovery document'
const needsGrant = ({ tokens, grant }: Session): string | false =>
  grant === 'ended' ? 'the grant has ended' : tokens === null && 'needs a connected company'
const needsAccounting = (session: Session): string | false =>
  needsGrant(session) ||
  (session.accountingUrl === null && 'no accounting address: set ACCOUNTING_URL') ||
  (session.realm === null && 'the company is not known: the callback had no realmId')

export const steps: readonly Step[] = [
  { name: 'discovery', blocked: () => null, run: checkDiscovery },
  { name: 'key pair', blocked: needsDocument, run: checkClient },
  {
    name: 'connect',
    question:
      'Connect a sandbox company that no installation uses? A second authorization may end the first.',
    blocked: (session) =>
      needsDocument(session) ||
      (session.clientSecret === null && 'needs a key pair that the provider accepts'),
    run: checkCallback,
  },
  {
    name: 'id token',
    blocked: (session) =>
      needsGrant(session) ||
      (!hasOpenId(session) && 'SCOPE has no openid') ||
      (session.idToken === null && 'the code exchange returned none'),
    run: checkIdToken,
  },
  { name: 'refresh', blocked: needsGrant, run: checkRefresh },
  { name: 'query', blocked: needsAccounting, run: checkQuery },
  {
    name: 'create',
    question: 'Create a customer with a made-up name in the connected company?',
    blocked: (session) =>
      (!session.settings.mayCreate && '--no-create') ||
      needsAccounting(session) ||
      (session.settings.profile.accounting.repeatablePost === null &&
        'the profile has no way to mark a POST as repeatable'),
    run: checkCreate,
  },
  { name: 'changed token', blocked: needsAccounting, run: checkAccessToken },
  {
    // This step runs after the accounting steps, because this step may end the grant that the accounting steps need.
    name: 'previous token',
    question: 'Use the previous refresh token once more? The provider may end the grant for it.',
    blocked: (session) =>
      needsGrant(session) ||
      (session.previousRefreshToken === null &&
        'the value did not change, so there is no previous one'),
    run: checkPreviousToken,
  },
  {
    name: 'revocation',
    question: 'Revoke the grant of this run?',
    blocked: ({ tokens, grant, document }) =>
      (tokens === null && 'needs a connected company') ||
      (grant === 'ended' && 'the grant has ended: run again without the step before this one') ||
      (document?.revocation_endpoint === null &&
        'the discovery document has no usable revocation_endpoint'),
    run: checkRevocation,
  },
  {
    name: 'limits',
    blocked: ({ responses }) => responses === 0 && 'there was no response',
    run: checkLimits,
  },
]

/**
 * Runs a step. If the step fails, the failure becomes a line of the report. Only errors that end the whole run are
 * thrown.
 */
export async function* runStep(step: Step, session: Session): AsyncGenerator<ReportedLine> {
  const reported = (line: Line): ReportedLine => ({
    ...line,
    step: step.name,
    seen: session.redaction.hide(line.seen),
  })
  const reason =
    step.blocked(session) ||
    (step.question !== undefined && !(await session.confirm(step.question)) && session.notConfirmed)
  if (reason) {
    yield reported(skipped(null, reason))
    return
  }
  try {
    for await (const line of step.run(session)) yield reported(line)
  } catch (error) {
    if (error instanceof NoCallback) {
      if (!error.isConsentPossible) session.grant = 'none'
    } else if (!(error instanceof NoResponse)) throw error
    yield reported(failed(null, error.message))
  }
}

async function* checkDiscovery(session: Session): AsyncGenerator<Line> {
  const { settings, expectations, call } = session
  const { discoveryUrl, profile } = settings
  const isStandIn = !isProviderHost(discoveryUrl, expectations)
  if (expectations.discovery.hosts !== null) {
    const { host } = new URL(discoveryUrl)
    const note = isStandIn ? ': not the provider itself, so only paths are compared' : ''
    yield judged('provider host', !isStandIn, `${host}${note}`)
  }

  const response = await call(discoveryUrl)
  const document =
    response.status === 200
      ? usableDocument(response.json, discoveryUrl)
      : { unusable: described(response, profile) }
  if (document.unusable !== undefined) {
    yield failed('discovery document', document.unusable)
    return
  }
  const differences = compareDocument(response.json ?? {}, expectations, isStandIn)
  yield differences.length === 0
    ? asDocumented('discovery document', 'all members as expected')
    : differs('discovery document', differences.join('; '))

  const known = document.accounting_url ?? profile.accounting.addressOf({ ...document })
  const url = settings.accountingUrl ?? known
  rejectProduction(url, session)
  session.document = document
  session.accountingUrl = url
  if (url === null) yield skipped('accounting address', 'none known: set ACCOUNTING_URL')
  else {
    const origin = document.accounting_url === null ? 'the profile' : 'the discovery document'
    const source = settings.accountingUrl === null ? origin : 'ACCOUNTING_URL'
    // Sandbox keys work only at the sandbox address, and production keys only at the production address.
    const other = known === null || known === url ? '' : `; the provider's is ${address(known)}`
    yield judged('accounting address', other === '', `${address(url)}, from ${source}${other}`)
  }

  if (document.jwks_uri === null) {
    yield failed('signing keys', 'no usable jwks_uri')
    return
  }
  const keySet = await call(document.jwks_uri)
  const read = keySet.status === 200 ? readKeys(keySet.json) : null
  if (read === null || read.keys.size === 0) {
    yield failed('signing keys', `${described(keySet, profile)}, no RSA key with a kid`)
    return
  }
  session.keys = read.keys
  const others = read.others === 0 ? '' : `, ${read.others} other`
  yield judged('signing keys', read.others === 0, `${read.keys.size} RSA${others}`)
}

/**
 * Checks the address of the accounting API before any request is sent to it.
 *
 * @throws {UsageError} the address is the production address, and --production was not given.
 */
export function rejectProduction(
  accountingUrl: string | null,
  { settings }: Pick<Session, 'settings'>,
): void {
  if (accountingUrl === null || settings.mayUseProduction) return
  if (new URL(accountingUrl).hostname.replace(/\.$/, '') !== PRODUCTION_ACCOUNTING_HOST) return
  throw new UsageError(
    `The accounting address is the production one (${PRODUCTION_ACCOUNTING_HOST}), so this could change real books. ` +
      'Use the discovery document and the keys of the sandbox, or --production if you intend this. Nothing was done.',
  )
}

async function* checkClient(session: Session): AsyncGenerator<Line> {
  const { settings, document, call } = session
  const { clientSecrets, clientId, redirect, profile } = settings
  for (const [index, clientSecret] of clientSecrets.entries()) {
    const { kind, response } = await checkKeyPair(call, {
      tokenEndpoint: document?.token_endpoint ?? '',
      clientId,
      clientSecret,
      redirect,
      headers: profile.token.requestHeaders,
    })
    const count = clientSecrets.length
    const which = count === 1 ? '' : `secret ${index + 1} of ${count}: `
    if (kind === 'right') {
      session.clientSecret = clientSecret
      yield asDocumented('key pair', `${which}invalid_grant for a made-up code`)
      return
    }
    yield failed('key pair', `${which}${described(response, profile)}`)
    if (kind === 'unclear') return
  }
}

async function* checkLimits(session: Session): AsyncGenerator<Line> {
  const { limitHeaders, responses, expectations } = session
  const seen = [...limitHeaders].map(([name, value]) =>
    value === null ? names([name]) : `${names([name])}: ${value}`,
  )
  yield seen.length === 0
    ? asDocumented('limit headers', `none in ${responses} responses`)
    : judged('limit headers', expectations.hasLimitHeaders, seen.join(', '))
}
