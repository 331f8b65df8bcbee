/**
 * Turns entries of the action log, of the audit log and of the console's own log into entries of the activity. The words
 * for an event are only here: the pages Now and Activity, the charts, and the histories of a company and of a run use
 * these entries.
 */
import { keyName, nameIn, type Names } from '../isomorphic/texts.ts'
import type { ActionView } from '@integration-host/shared/contracts/operations'
import type { AuditEntry } from '@integration-host/shared/contracts/audit'
import type { ActivityEntry, ActivityQuery } from '../contracts/activity.ts'
import {
  bulkPage,
  companyPage,
  deadLettersPage,
  processPage,
  runPage,
  schedulePage,
} from '../isomorphic/pages.ts'
import type { SignInEntry } from '../session/sign-in-log.ts'

/** The actions in the past tense. An action that is not listed here is shown by its name. */
const ACTION_TEXTS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    queue: 'queued',
    replay: 'replayed',
    resume: 'resumed',
    cancel: 'cancelled',
    retry: 'retried',
    settle: 'settled',
    signal: 'sent an event to',
    link: 'made an address for a decision about',
    erase: 'erased',
    pause: 'paused',
    start_operation: 'started a bulk operation on',
    stop_operation: 'stopped a bulk operation on',
    continue_operation: 'continued a bulk operation on',
    pause_schedule: 'paused the schedule',
    resume_schedule: 'resumed the schedule',
    run_schedule: 'ran the schedule',
    purge: 'purged',
    forget: 'forgot',
    requeue_dead_letter: 'requeued a dead letter of',
    delete_dead_letter: 'deleted a dead letter of',
    delete_dead_letters: 'deleted the dead letters of',
    export: 'exported runs of',
    read_data: 'read data of',
    read_dead_letter: 'read a dead letter of',
    read_dead_letters: 'read dead letters of',
  }),
)
/** The outcomes of actions that were not rejected. */
const DONE = new Set(['done', 'not_done', 'absorbed'])
/** The actions whose TransactionID does not identify a run. */
const OF_SCHEDULE = /_schedule$/
const OF_OPERATION = /_operation$/
const OF_DEAD_LETTERS = /_dead_letters?$/

const AUDIT_TEXTS: Readonly<Partial<Record<AuditEntry['What'], string>>> = {
  granted: 'connected',
  refreshed: 'refreshed',
  refresh_failed: 'could not refresh',
  faulted: 'could not refresh',
  expiring: 'warned of the end of the grant of',
  removed: 'disconnected',
  exported: 'exported',
  imported: 'imported',
  adopted: 'adopted',
  labelled: 'changed the name or the tags of',
  link_created: 'made a connect link for',
  link_used: 'used a connect link for',
  link_withdrawn: 'withdrew a connect link for',
  keys_rotated: 'rotated the keys of the credentials',
  unreadable: 'left an entry that could not be read',
}

/** What an entry without a company is about. */
const NAMELESS_TARGETS: Readonly<Partial<Record<AuditEntry['What'], string>>> = {
  granted: 'a company',
  link_created: 'any company',
  link_used: 'any company',
  link_withdrawn: 'any company',
}

/** What has not happened, because the outcome of the entry is an error. */
const FAILED_TEXTS: Readonly<Partial<Record<AuditEntry['What'], string>>> = {
  granted: 'could not connect',
  adopted: 'could not adopt',
}

/** The text of an entry of the audit log; `undefined` for a token issuance. */
function auditText({ What, Outcome }: AuditEntry): string | undefined {
  if (What === 'granted' && Outcome === 'realm_mismatch')
    return 'chose another company at the provider instead of'
  return (Outcome === 'ok' ? undefined : FAILED_TEXTS[What]) ?? AUDIT_TEXTS[What]
}

export function activityOfAction(action: ActionView): ActivityEntry {
  const { Action, Process, TransactionID, ReplayID, Person, KeyID, Outcome } = action
  const isOfProcess = TransactionID === null || OF_SCHEDULE.test(Action)
  const isDone = DONE.has(Outcome)
  const plain = Action.replaceAll('_', ' ')
  const company = TransactionID === null && Process === '*' ? action.Realm : null
  return {
    Key: `action ${action.ID}`,
    At: action.At,
    Kind: isOfProcess ? 'processes' : 'runs',
    Who: Person ?? `key ${keyName(KeyID)}`,
    Via: Person === null ? null : `key ${keyName(KeyID)}`,
    What: isDone ? (ACTION_TEXTS.get(Action) ?? plain) : `tried to ${plain}`,
    Target: [
      company !== null
        ? `company ${company}`
        : TransactionID === null
          ? Process
          : `${Process}/${scheduleOf(action) ?? TransactionID}`,
      ...(ReplayID === null ? [] : [`run ${ReplayID}`]),
    ].join(', '),
    Company: null,
    Page:
      company !== null
        ? companyPage(company)
        : isOfProcess
          ? actionPage(action)
          : runPage(Process, TransactionID, ReplayID),
    Reason: action.Reason,
    Outcome: Outcome === 'done' ? null : Outcome,
    Rejected: !isDone,
    Realm: action.Realm,
    TraceId: null,
  }
}

/** Returns the page about an action that is not about a run. */
function actionPage({ Action, Process, TransactionID, OperationID }: ActionView): string {
  if (OF_OPERATION.test(Action) && OperationID !== null) return bulkPage(OperationID)
  if (OF_DEAD_LETTERS.test(Action)) return deadLettersPage(Process)
  const schedule = scheduleOf({ Action, TransactionID })
  return schedule === null ? processPage(Process) : schedulePage(Process, schedule)
}

/**
 * Returns the name of the schedule that an action is about; `null` for another action. The log has the name with the
 * time of the run, such as `nightly@2026-11-26T02:00:00Z`, or with an empty time.
 */
const scheduleOf = ({
  Action,
  TransactionID,
}: Pick<ActionView, 'Action' | 'TransactionID'>): string | null =>
  OF_SCHEDULE.test(Action) ? (TransactionID?.split('@')[0] ?? null) : null

/** Returns whether no person caused an entry of the audit log: a refresh by token-service itself. */
export const isRoutine = ({ Who, What }: AuditEntry): boolean =>
  Who === 'routine' && What === 'refreshed'

/** Returns the entry for an entry of the audit log; `null` for token issuances. */
export function activityOfAudit(entry: AuditEntry): ActivityEntry | null {
  const text = auditText(entry)
  if (text === undefined) return null
  const [, via = null, person = null] = /^(key \S+) for (.+)$/.exec(entry.Who) ?? []
  const realm = entry.Name.startsWith('ACC-') ? entry.Name.slice('ACC-'.length) : null
  return {
    Key: `audit ${entry.Seq}`,
    At: entry.At,
    Kind: 'companies',
    Who: person ?? entry.Who.replace(/(?<=^key )\S+$/, keyName),
    Via: via,
    What: text,
    Target: entry.Name !== '' ? entry.Name : (NAMELESS_TARGETS[entry.What] ?? null),
    Company: null,
    Page: realm === null ? null : companyPage(realm),
    Reason: entry.Reason ?? null,
    Outcome: entry.Outcome === 'ok' ? null : entry.Outcome,
    Rejected:
      entry.What === 'faulted' ||
      entry.What === 'refresh_failed' ||
      (entry.What in FAILED_TEXTS && entry.Outcome !== 'ok'),
    Realm: realm,
    TraceId: entry.TraceId ?? null,
  }
}

/** Returns the company that an entry is about; `null` if it is about something else. */
export const companyOf = ({ Page, Realm }: ActivityEntry): string | null =>
  Realm !== null && Page === companyPage(Realm) ? Realm : null

/** Adds the name of its company to an entry about a company. `names` has the names by realm. */
export const withCompanyName = (entry: ActivityEntry, names: Names): ActivityEntry => {
  const name = nameIn(names, companyOf(entry))
  return name === undefined ? entry : { ...entry, Company: name }
}

/** Returns what an entry says after the name of the person, as text. */
export const textOfActivity = ({ What, Target, Company, Outcome }: ActivityEntry): string =>
  [What, Company ?? Target, Outcome === null ? null : `(${Outcome})`]
    .filter((part) => part !== null)
    .join(' ')

const SIGN_IN_TEXTS: Readonly<Record<SignInEntry['what'], string>> = {
  accepted: 'signed in',
  rejected: 'was rejected at the sign-in',
  ended: 'ended a session',
}

export const activityOfSignIn = ({ id, at, what, user, way }: SignInEntry): ActivityEntry => ({
  Key: `sign-in ${id}`,
  At: new Date(at).toISOString(),
  Kind: 'sign-ins',
  // The typed name may be a password in the wrong field, so it is not shown.
  Who: user ?? 'an unknown person',
  Via: null,
  What: SIGN_IN_TEXTS[what],
  Target: `by ${way}`,
  Company: null,
  Page: null,
  Reason: null,
  Outcome: null,
  Rejected: what === 'rejected',
  Realm: null,
  TraceId: null,
})

/** Returns whether an entry matches those filters that the services do not know. */
const matchesActivity = (
  { Who, Kind, Realm }: ActivityEntry,
  { person, kind, realm }: ActivityQuery,
): boolean =>
  (person === undefined || Who.toLowerCase().includes(person.toLowerCase())) &&
  (kind === undefined || Kind === kind) &&
  (realm === undefined || Realm === realm)

/** A part of a log, the newest entry first. */
export interface LogPart {
  /** The entries with their positions. An entry that the activity leaves out is `null`. */
  readonly items: readonly { readonly position: number; readonly entry: ActivityEntry | null }[]
  /** Whether the log has entries that are older than this part. */
  readonly hasMore: boolean
}

/**
 * The position in a log at which a page begins. The page has only entries that are older than this position. With
 * `null`, the page begins with the newest entry. With `end`, the log has no further entries.
 */
export type LogPosition = number | 'end' | null

export interface MergedActivity {
  readonly entries: readonly ActivityEntry[]
  /** For each log, the position at which the next page begins. */
  readonly next: readonly LogPosition[]
}

/**
 * Merges parts of logs, newest entry first, until there are `limit` entries. Also stops at the end of a part whose log
 * has more entries, because the following entries of that log may be newer than the entries of the other logs. `from`
 * are the positions at which the parts begin.
 */
export function mergeActivity(
  parts: readonly LogPart[],
  from: readonly LogPosition[],
  query: ActivityQuery,
  limit: number,
): MergedActivity {
  const indexes = parts.map(() => 0)
  // An entry that is added meanwhile is newer than the entries of this page, so the next page does not contain this
  // entry.
  const next = from.map((position, part) => {
    const first = parts[part]?.items[0]
    return position === null && first !== undefined ? first.position + 1 : position
  })
  const entries: ActivityEntry[] = []
  const skip = (part: number): void => {
    const item = parts[part]?.items[indexes[part] ?? 0]
    if (item === undefined) return
    next[part] = item.position
    indexes[part] = (indexes[part] ?? 0) + 1
  }
  while (entries.length < limit) {
    let newest: { readonly part: number; readonly entry: ActivityEntry } | null = null
    for (const [part, { items }] of parts.entries()) {
      while (items[indexes[part] ?? 0]?.entry === null) skip(part)
      const entry = items[indexes[part] ?? 0]?.entry ?? null
      if (entry !== null && (newest === null || entry.At > newest.entry.At))
        newest = { part, entry }
    }
    const isCut = parts.some(
      ({ items, hasMore }, part) => indexes[part] === items.length && hasMore,
    )
    if (newest === null || isCut) break
    skip(newest.part)
    if (matchesActivity(newest.entry, query)) entries.push(newest.entry)
  }
  for (const [part, { items, hasMore }] of parts.entries())
    if (indexes[part] === items.length && !hasMore) next[part] = 'end'
  return { entries, next }
}
