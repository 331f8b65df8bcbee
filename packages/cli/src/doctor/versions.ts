/** Compares the version numbers of stored credentials with those in the audit log. */
import { AuditPage } from '@integration-host/shared/contracts/audit'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
} from '@integration-host/shared/observability/checks/check-result'
import { CredentialPage } from '../commands/credentials.ts'
import { query, type Service } from './services.ts'

const CHECK = 'versions'
const AUDIT_PAGE = 1_000
const CREDENTIAL_PAGE = 500
/** The audit actions that store a token pair. The outcome of a successful action is `ok`. */
const STORING = new Set(['granted', 'refreshed', 'imported', 'adopted'])

/**
 * Reports credentials whose stored version is lower than their newest version in the audit log. A program that can
 * write to the store could replace a credential with an earlier record of the same credential. An earlier record is
 * authentic, so only the audit log reveals the replacement.
 */
export async function examineVersions(
  service: Service,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  // The audit log is read before the credentials. A refresh between the two reads then makes the stored version the
  // higher one, which is not reported.
  const audited = new Map<string, number>()
  for (let after = 0, newest = 1; after < newest;) {
    const page = await query(
      service,
      `/audit?after=${after}&limit=${AUDIT_PAGE}`,
      AuditPage,
      signal,
    )
    if (!('data' in page)) return [unfinished()]
    const { items, head } = page.data
    for (const { What, Name, Version, Outcome } of items) {
      if (What === 'removed') audited.delete(Name)
      else if (STORING.has(What) && Outcome === 'ok') audited.set(Name, Version)
    }
    newest = head.Seq
    after = items.at(-1)?.Seq ?? newest
  }
  let compared = 0
  const older: string[] = []
  for (let cursor: string | null = ''; cursor !== null;) {
    const search: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
    const path = `/credentials?limit=${CREDENTIAL_PAGE}${search}`
    const page = await query(service, path, CredentialPage, signal)
    if (!('data' in page)) return [unfinished()]
    for (const { Name, Version } of page.data.items) {
      const newest = audited.get(Name)
      if (newest === undefined) continue
      compared += 1
      if (Version < newest) older.push(`${Name} has ${Version}, the log ${newest}`)
    }
    cursor = page.data.next_cursor
  }
  return [
    older.length === 0
      ? ok(CHECK, `${compared} are not older than in the audit log`)
      : problem(
          CHECK,
          `${older.length} older than in the audit log: ${older.slice(0, 3).join('; ')}${older.length > 3 ? '; …' : ''}`,
          'Connect these companies again, and find out which program has put an earlier record back into the store.',
        ),
  ]
}

const unfinished = (): CheckResult =>
  skipped(CHECK, 'the audit log or the list was not read in time', 'Use a longer --timeout.')
