/** Reads the audit log and all credentials once, and checks both. */
import { remedyFor } from '@integration-host/shared/conditions'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import {
  type CheckResult,
  ok,
  problem,
  warning,
} from '@integration-host/shared/observability/checks'
import { realmOf } from '@integration-host/shared/contracts/realm'
import { inOrder, readerOf } from '../commands/audit.ts'
import { credentialPages } from '../commands/credentials.ts'
import { NoData, orNoData, type Reader } from './query.ts'
import { firstOf, mostFrequent, resultsOf } from './results.ts'

/** The maximum number of companies that a line lists by name. */
const MAX_NAMED = 3
/** The audit actions that store a token pair. The outcome of a successful action is `ok`. */
const STORING = new Set(['granted', 'refreshed', 'imported', 'adopted'])

/**
 * Reports faulted companies, failing refreshes, companies whose grant ends soon, and outdated versions.
 *
 * @param auditReader reads the audit log. It stops earlier than `reader`, so that time is left for the credentials.
 * @throws {NoData} the credentials cannot be read.
 */
export async function examineCredentials(
  auditReader: Reader,
  reader: Reader,
): Promise<readonly CheckResult[]> {
  // The audit log is read before the credentials. If a refresh happens between the two reads, the stored version is
  // higher than the version in the audit log. This difference is normal and not reported.
  const audited = await orNoData(readAudit(auditReader))
  const credentials: CredentialView[] = []
  for await (const items of credentialPages(reader)) credentials.push(...items)
  return [
    ...checkCredentials(credentials),
    audited instanceof NoData ? audited.result : checkVersions(audited, credentials),
  ]
}

/** Returns the newest stored version of each credential in the audit log. */
async function readAudit(reader: Reader): Promise<ReadonlyMap<string, number>> {
  const audited = new Map<string, number>()
  for await (const items of inOrder(readerOf(reader), 0))
    for (const { What, Name, Version, Outcome } of items) {
      if (What === 'removed') audited.delete(Name)
      else if (STORING.has(What) && Outcome === 'ok') audited.set(Name, Version)
    }
  return audited
}

/** Returns the check results of the credentials. This function is exported only for its test. */
export function checkCredentials(credentials: readonly CredentialView[]): CheckResult[] {
  const inState = (state: CredentialView['State']) =>
    credentials.filter(({ State }) => State === state)
  const of = (some: readonly CredentialView[]): string => `${some.length} of ${credentials.length}`
  const [lost, failing, expiring] = [
    inState('must_reconnect'),
    inState('failing'),
    inState('expiring'),
  ]
  // If a refresh has failed while the access token is still valid, attempts are counted but there is no fault yet.
  const delayed = credentials.filter(({ Fault, Attempts }) => Fault === undefined && Attempts > 0)
  const seeFaults = ([first]: readonly CredentialView[]): string =>
    remedyFor('CredentialsFaulted', `integration-host credentials show ${first?.Name ?? ''}`)
  const results = resultsOf(
    lost.length > 0 &&
      problem(
        'companies',
        `${of(lost)} must be connected again (${classesOf(lost)}): ${named(lost)}`,
        seeFaults(lost),
      ),
    failing.length > 0 &&
      problem(
        'companies',
        `${of(failing)} cannot be refreshed now (${classesOf(failing)}): ${named(failing)}`,
        seeFaults(failing),
      ),
    delayed.length > 0 &&
      warning(
        'refreshes',
        `the last refresh of ${of(delayed)} has failed; their access tokens are valid until ${earliest(delayed)} or longer: ${named(delayed)}`,
        remedyFor('RefreshesFailing', 'Check that the token endpoint is available'),
      ),
    expiring.length > 0 &&
      warning(
        'expiring',
        `the grants of ${of(expiring)} end soon: ${named(expiring, ({ HardExpiry }) => HardExpiry?.slice(0, 10))}`,
        remedyFor(
          'GrantsExpiring',
          `integration-host credentials connect --realm ${realmOf(expiring[0]?.Name ?? '')}`,
        ),
      ),
  )
  return results.length > 0
    ? results
    : [ok('companies', credentials.length === 0 ? 'none yet' : `all ${credentials.length} active`)]
}

const earliest = (credentials: readonly CredentialView[]): string =>
  credentials.map(({ Expiry }) => Expiry).toSorted()[0] ?? ''

/**
 * Returns the names of the first credentials, each followed by the text that `detailOf` returns for the credential.
 */
const named = (
  credentials: readonly CredentialView[],
  detailOf: (credential: CredentialView) => string | undefined = () => undefined,
): string =>
  firstOf(
    credentials.map((credential) => {
      const detail = detailOf(credential)
      return detail === undefined ? credential.Name : `${credential.Name} (${detail})`
    }),
    MAX_NAMED,
  )

/** Returns how many credentials have a fault of each class, the most frequent first. */
const classesOf = (credentials: readonly CredentialView[]): string =>
  mostFrequent(credentials.flatMap(({ Fault }) => (Fault === undefined ? [] : [Fault.Code])))
    .map(([code, count]) => `${code} ${count}`)
    .join(', ')

/**
 * Reports credentials whose stored version is lower than their newest version in the audit log. A program that can
 * write to the store could replace a record with an earlier record of the same credential. The earlier record can
 * be decrypted like the current one, so only the audit log reveals the replacement.
 */
function checkVersions(
  audited: ReadonlyMap<string, number>,
  credentials: readonly CredentialView[],
): CheckResult {
  const compared = credentials.filter(({ Name }) => audited.has(Name))
  const older = compared
    .filter(({ Name, Version }) => Version < (audited.get(Name) ?? 0))
    .map(({ Name, Version }) => `${Name} has ${Version}, the log ${audited.get(Name)}`)
  return older.length === 0
    ? ok('versions', `${compared.length} are not older than in the audit log`)
    : problem(
        'versions',
        `${older.length} older than in the audit log: ${firstOf(older, MAX_NAMED, '; ')}`,
        'Connect these companies again, and find out which program has put an earlier record back into the store.',
      )
}
