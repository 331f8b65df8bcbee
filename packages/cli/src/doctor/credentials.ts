/** Reads the audit log and all credentials once, and checks both. */
import { AuditPage } from '@integration-host/shared/contracts/audit'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks/check-result'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { CredentialPage } from '../commands/credentials.ts'
import { query, type Service } from './query.ts'

const AUDIT_PAGE = 1_000
const CREDENTIAL_PAGE = 500
/** This many companies are named in a line. */
const MAX_NAMED = 3
/** The audit actions that store a token pair. The outcome of a successful action is `ok`. */
const STORING = new Set(['granted', 'refreshed', 'imported', 'adopted'])

/** Reports faulted companies, failing refreshes, companies whose grant ends soon, and outdated versions. */
export async function examineCredentials(
  service: Service,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  // The audit log is read before the credentials. A refresh between the two reads then makes the stored version the
  // higher one, which is not reported.
  const audited = await readAudit(service, signal)
  const credentials = await readCredentials(service, signal)
  if (credentials === null) return [unfinished('credentials')]
  return [
    ...checkCredentials(credentials),
    audited === null ? unfinished('versions') : checkVersions(audited, credentials),
  ]
}

/** Returns the newest stored version of each credential in the audit log; `null` if the log was not read in time. */
async function readAudit(
  service: Service,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number> | null> {
  const audited = new Map<string, number>()
  for (let after = 0, newest = 1; after < newest;) {
    const path = `/audit?after=${after}&limit=${AUDIT_PAGE}`
    const page = await query(service, path, AuditPage, signal)
    if (!('data' in page)) return null
    const { items, head } = page.data
    for (const { What, Name, Version, Outcome } of items) {
      if (What === 'removed') audited.delete(Name)
      else if (STORING.has(What) && Outcome === 'ok') audited.set(Name, Version)
    }
    newest = head.Seq
    after = items.at(-1)?.Seq ?? newest
  }
  return audited
}

/** Returns all credentials; `null` if they were not read in time. */
async function readCredentials(
  service: Service,
  signal: AbortSignal,
): Promise<readonly CredentialView[] | null> {
  const credentials: CredentialView[] = []
  for (let cursor: string | null = ''; cursor !== null;) {
    const search: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
    const path = `/credentials?limit=${CREDENTIAL_PAGE}${search}`
    const page = await query(service, path, CredentialPage, signal)
    if (!('data' in page)) return null
    credentials.push(...page.data.items)
    cursor = page.data.next_cursor
  }
  return credentials
}

/** Exported for its test. */
export function checkCredentials(credentials: readonly CredentialView[]): CheckResult[] {
  const inState = (state: CredentialView['State']) =>
    credentials.filter(({ State }) => State === state)
  const of = (some: readonly CredentialView[]): string => `${some.length} of ${credentials.length}`
  const [lost, failing, expiring] = [
    inState('must_reconnect'),
    inState('failing'),
    inState('expiring'),
  ]
  // A refresh has failed, and the access token is still valid, so there is no fault.
  const delayed = credentials.filter(({ Fault, Attempts }) => Fault === undefined && Attempts > 0)
  const results = [
    ...(lost.length === 0
      ? []
      : [
          problem(
            'companies',
            `${of(lost)} must be connected again (${classesOf(lost)}): ${named(lost)}`,
            `integration-host credentials show ${lost[0]?.Name ?? ''}, then have it connected (docs/runbook.md#a-credential-is-faulted)`,
          ),
        ]),
    ...(failing.length === 0
      ? []
      : [
          problem(
            'companies',
            `${of(failing)} cannot be refreshed now, which is tried again (${classesOf(failing)}): ${named(failing)}`,
            `integration-host credentials show ${failing[0]?.Name ?? ''} says why and until when (docs/runbook.md#a-credential-is-faulted)`,
          ),
        ]),
    ...(delayed.length === 0
      ? []
      : [
          warning(
            'refreshes',
            `the last refresh of ${of(delayed)} has failed; their access tokens are valid until ${earliest(delayed)} or longer: ${named(delayed)}`,
            'It is tried again. Is the token endpoint up? docs/runbook.md#refreshesfailing',
          ),
        ]),
    ...(expiring.length === 0
      ? []
      : [
          warning(
            'expiring',
            `${of(expiring)} end soon: ${named(expiring, ({ HardExpiry }) => HardExpiry?.slice(0, 10))}`,
            `Have them connected again before: integration-host credentials connect --realm ${realmOf(expiring[0]?.Name ?? '')}`,
          ),
        ]),
  ]
  return results.length > 0
    ? results
    : [ok('companies', credentials.length === 0 ? 'none yet' : `all ${credentials.length} active`)]
}

const earliest = (credentials: readonly CredentialView[]): string =>
  credentials.map(({ Expiry }) => Expiry).toSorted()[0] ?? ''

/** Returns the first names, with the text that `detailOf` returns. */
const named = (
  credentials: readonly CredentialView[],
  detailOf: (credential: CredentialView) => string | undefined = () => undefined,
): string => {
  const names = credentials.slice(0, MAX_NAMED).map((credential) => {
    const detail = detailOf(credential)
    return detail === undefined ? credential.Name : `${credential.Name} (${detail})`
  })
  return [...names, ...(credentials.length > MAX_NAMED ? ['…'] : [])].join(', ')
}

/** Returns how many credentials have a fault of each class, the most frequent first. */
function classesOf(credentials: readonly CredentialView[]): string {
  const counts = new Map<string, number>()
  for (const { Fault } of credentials)
    if (Fault !== undefined) counts.set(Fault.Code, (counts.get(Fault.Code) ?? 0) + 1)
  return [...counts]
    .toSorted(([, a], [, b]) => b - a)
    .map(([code, count]) => `${code} ${count}`)
    .join(', ')
}

/**
 * Reports credentials whose stored version is lower than their newest version in the audit log. A program that can
 * write to the store could replace a credential with an earlier record of the same credential. An earlier record is
 * authentic, so only the audit log reveals the replacement.
 */
function checkVersions(
  audited: ReadonlyMap<string, number>,
  credentials: readonly CredentialView[],
): CheckResult {
  const compared = credentials.filter(({ Name }) => audited.has(Name))
  const older = compared.filter(({ Name, Version }) => Version < (audited.get(Name) ?? 0))
  return older.length === 0
    ? ok('versions', `${compared.length} are not older than in the audit log`)
    : problem(
        'versions',
        `${older.length} older than in the audit log: ${older
          .slice(0, MAX_NAMED)
          .map(({ Name, Version }) => `${Name} has ${Version}, the log ${audited.get(Name)}`)
          .join('; ')}${older.length > MAX_NAMED ? '; …' : ''}`,
        'Connect these companies again, and find out which program has put an earlier record back into the store.',
      )
}

const unfinished = (check: string): CheckResult =>
  skipped(check, 'the audit log or the list was not read in time', 'Use a longer --timeout.')
