/**
 * The conditions that the page Now shows. Their severities, sentences and remedies are those of the catalogue
 * (packages/shared/src/conditions.ts), unless the console knows more. metric-conditions.ts has the conditions that are
 * found in the metrics.
 */
import { companyPage, pages, processPage, withQuery } from '../isomorphic/pages.ts'
import { companyStateTexts, counted, faultText, keyName, nameIn } from '../isomorphic/texts.ts'
import { readWaitingFor, realmWaitedFor } from '@integration-host/shared/contracts/run'
import {
  providerCode,
  providerRemedy,
} from '@integration-host/shared/provider-profile/provider-fault'
import type { CredentialView } from '@integration-host/shared/contracts/credential'
import { realmOf } from '@integration-host/shared/contracts/realm'
import {
  companyName,
  type Condition,
  condition,
  joined,
  listed,
  mostUrgentFirst,
} from './condition.ts'
import { CLASSES, failureRemedy, isDataRejected } from './error-class.ts'
import type { Installation, RunGroup } from './installation.ts'
import { metricConditions } from './metric-conditions.ts'
import { outages } from './outages.ts'
import { runCounts } from './run-counts.ts'

/** Returns the conditions, the most urgent first. */
export function conditionsOf(installation: Installation): readonly Condition[] {
  const { asOf } = installation
  return mostUrgentFirst([
    ...outages(installation),
    ...foundIn(asOf.companies, companies(installation)),
    ...foundIn(asOf.processes, runs(installation)),
    ...foundIn(asOf.processes, processes(installation)),
    ...foundIn(asOf.processes, pausedCompanies(installation)),
    ...metricConditions(installation),
  ])
}

const foundIn = (asOf: number | null, conditions: Iterable<Condition>): readonly Condition[] =>
  [...conditions].map((one) => ({ ...one, asOf }))

/** Returns the page and the action for a company that must be reconnected. */
function reconnecting({
  Name,
  Label,
  CompanyName,
}: CredentialView): Pick<Condition, 'page' | 'action'> {
  const realm = realmOf(Name)
  return {
    page: companyPage(realm),
    action: {
      Kind: 'connect_company',
      Realm: realm,
      ...(Label !== '' && { Label }),
      ...(CompanyName !== undefined && { CompanyName }),
    },
  }
}

const earliest = (times: readonly number[]): number | null =>
  times.length === 0 ? null : Math.min(...times)

function* companies(installation: Installation): Generator<Condition> {
  const { companies: counts, faulted } = installation
  const waiting = runsWaitingFor(installation, 'credential')
  const mustReconnect = faulted.filter(({ State }) => State === 'must_reconnect')
  const lost = Math.max(counts?.States.must_reconnect ?? 0, mustReconnect.length)
  if (lost > 0) {
    yield condition('CredentialsFaulted', {
      key: 'final',
      title: `${counted(lost, 'company', 'companies')} ${companyStateTexts.must_reconnect}`,
      detail: companiesText(mustReconnect, lost, waiting),
      remedy:
        lost === 1
          ? 'Only a new authorization by the owner of the company helps.'
          : 'Only new authorizations by the owners of the companies help.',
      affected: lost,
      knownSince: earliest(mustReconnect.flatMap(({ Fault }) => faultTime(Fault))),
      begin: 'first failure',
      ...(lost === 1 && mustReconnect[0] !== undefined
        ? reconnecting(mustReconnect[0])
        : {
            page: `${pages.companies}?state=must_reconnect`,
            action: { Kind: 'send_links' },
          }),
    })
  }
  const failing = faulted.filter(({ State }) => State === 'failing')
  const count = Math.max(counts?.States.failing ?? 0, failing.length)
  const [first] = failing
  // The provider has rejected the refresh token. It is sent again, because some providers also do this in an outage.
  const isRejected = first?.Fault?.Final === false
  if (count > 0)
    yield condition('CredentialsFaulted', {
      key: 'retried',
      severity: 'warning',
      title: `${counted(count, 'company', 'companies')} ${companyStateTexts.failing}`,
      detail: companiesText(failing, count, waiting),
      remedy:
        count === 1 && isRejected
          ? (first.Fault?.Remedy ?? '')
          : 'The refresh is retried by itself. Valid access tokens are served until they expire.',
      affected: count,
      knownSince: earliest(failing.flatMap(({ Fault }) => faultTime(Fault))),
      begin: 'first failure',
      page: `${pages.companies}?state=failing`,
      ...(count === 1 && isRejected && reconnecting(first)),
    })
  const ending = counts?.States.expiring ?? 0
  if (ending > 0)
    yield condition('GrantsExpiring', {
      title: `${counted(ending, 'grant ends', 'grants end')} soon`,
      detail: 'A refresh cannot extend a grant beyond its end.',
      affected: ending,
      page: `${pages.companies}?state=expiring`,
    })
}

/** Returns the names of `count` companies, the classes of their faults, and how many runs wait for them. */
function companiesText(
  credentials: readonly CredentialView[],
  count: number,
  waiting: readonly RunGroup[],
): string {
  const classes = Map.groupBy(credentials, ({ Fault }) => faultText(Fault?.Code ?? 'ended'))
  const byClass = [...classes]
    .map(([name, items]) => (classes.size === 1 ? name : `${name} ${items.length}`))
    .join(' · ')
  const names = new Set(credentials.map(({ Name }) => Name))
  const held = total(waiting.filter(({ waitingFor }) => names.has(waitingFor ?? '')))
  const waits = held === 0 ? '' : counted(held, 'run waits', 'runs wait')
  return joined(listed(credentials.map(companyName), count), byClass, waits)
}

/** Returns the groups of runs that wait for a company, or for something else of this kind. */
const runsWaitingFor = (
  { processes: all }: Installation,
  kind: 'credential' | 'books',
): readonly RunGroup[] =>
  (all ?? [])
    .flatMap(({ groups }) => groups ?? [])
    .filter(({ waitingFor }) => readWaitingFor(waitingFor)?.kind === kind)

const faultTime = (fault: CredentialView['Fault']): readonly number[] =>
  fault === undefined ? [] : [Date.parse(fault.Since ?? fault.At)]

const rejectedText = (errorClass: string): string => `the provider rejected it (${errorClass})`

/** Returns the texts about failed runs with the same error class. The provider's messages are texts from outside. */
function failureTexts(errorClass: string | null, groups: readonly RunGroup[]) {
  const name = errorClass ?? 'without an error class'
  const same = groups.toSorted((one, other) => other.count - one.count)
  const [most] = same
  const known = same.flatMap(({ providerError }) => providerError ?? [])
  const remedy = providerRemedy(most?.providerError ?? null) ?? failureRemedy(errorClass)
  const cause = CLASSES.get(name)?.cause
  if (known.length === 0)
    return { title: '', detail: cause === undefined ? name : `${cause} (${name})`, remedy }
  if (same.length === 1) return { title: `: ${known[0]}`, detail: rejectedText(name), remedy }
  const texts = same.map(({ providerError, count }) => `${count} × ${providerError ?? name}`)
  return { title: '', detail: listed(texts), remedy }
}

const placeOf = ({ process, step }: RunGroup): string =>
  step === null ? process : `${process}.${step}`

const firstEnd = (groups: readonly RunGroup[]): number | null =>
  earliest(groups.flatMap(({ endedAt }) => endedAt ?? []))

/** Returns the provider's code if all of these runs failed with it, so that a link shows these runs and no others. */
function codeOf(same: readonly RunGroup[]): string | null {
  const codes = new Set(same.map(({ providerError }) => providerCode(providerError)))
  return codes.size === 1 ? ([...codes][0] ?? null) : null
}

/** Returns the cause of failed runs at one place if the provider has rejected all of them for the same reason. */
function causeOf(same: readonly RunGroup[]): string | null {
  const [first] = same
  const reason = first?.providerError ?? null
  return reason !== null && same.every(({ providerError }) => providerError === reason)
    ? JSON.stringify([first?.errorClass, reason])
    : null
}

function* runs(installation: Installation): Generator<Condition> {
  const { processes: all, faulted, companyNames = {} } = installation
  const groups = (all ?? []).flatMap((process) => process.groups ?? [])
  const failed = Map.groupBy(
    groups.filter(({ status, count }) => status === 'Failed' && count > 0),
    ({ process, step, errorClass }) => JSON.stringify([process, step, errorClass]),
  )
  const causes = Map.groupBy(failed, ([place, same]) => causeOf(same) ?? place)
  for (const [key, found] of causes) {
    const same = found.flatMap(([, group]) => group)
    const [first] = same
    if (first === undefined) continue
    const count = total(same)
    const { title, detail, remedy } = failureTexts(first.errorClass, same)
    if (found.length > 1) {
      yield condition('RunsFailed', {
        key,
        title: `${counted(count, 'run')} failed: ${first.providerError}`,
        detail: joined(rejectedText(first.errorClass ?? ''), listed(same.map(placeOf))),
        remedy,
        affected: count,
        knownSince: firstEnd(same),
        begin: 'first failure',
        page: runsPage({ status: 'Failed', class: providerCode(first.providerError) }),
      })
      continue
    }
    yield condition('RunsFailed', {
      key,
      // A single failed run needs a person some time. Several show that something is broken.
      ...(count === 1 && { severity: 'info' }),
      title: `${counted(count, 'run')} failed at ${placeOf(first)}${title}`,
      detail,
      remedy,
      affected: count,
      knownSince: firstEnd(same),
      begin: count === 1 ? 'failed' : 'first failure',
      page: runsPage({
        status: 'Failed',
        process: first.process,
        step: first.step,
        class: codeOf(same) ?? first.errorClass,
      }),
      action: {
        Kind: 'resume_runs',
        Process: first.process,
        Step: first.step,
        Class: first.errorClass,
        DataRejected: isDataRejected(first.errorClass),
      },
    })
  }
  for (const group of groups) {
    const { process, step, status, errorClass, count, endedAt } = group
    if (status !== 'UndoFailed' || count === 0) continue
    const { title, detail, remedy } = failureTexts(errorClass, [group])
    yield condition('RunsFailed', {
      key: `undo ${process} ${step} ${errorClass}`,
      title: `${counted(count, 'run')} could not be undone at ${placeOf(group)}${title}`,
      detail,
      remedy,
      affected: count,
      knownSince: endedAt,
      page: runsPage({ status, process, step, class: codeOf([group]) ?? errorClass }),
    })
  }
  const inDoubt = groups.reduce((sum, group) => sum + group.inDoubt, 0)
  if (inDoubt > 0)
    yield condition('RunsInDoubt', {
      title: `${counted(inDoubt, 'run')} may have done the work of a step already`,
      detail:
        inDoubt === 1
          ? 'Its last call got no response, so the effect of the call is unknown.'
          : 'Their last calls got no response, so the effects of the calls are unknown.',
      affected: inDoubt,
      page: runsPage({ inDoubt: 'true' }),
    })
  for (const { process, step, status, errorClass, count } of groups) {
    if (errorClass !== 'worker_lost' || status !== 'Retrying') continue
    yield condition('RunsLosingWorkers', {
      key: `${process} ${step}`,
      title: `${counted(count, 'run')} of ${process} lost two workers in a row at ${step}`,
      detail: 'The step may be what ends the coordinator. Its next attempt waits longer each time.',
      affected: count,
      page: runsPage({ status, process, step, class: errorClass }),
    })
  }
  const undecided = runsWaitingForDecisions(installation)
  if (undecided.length > 0) {
    const waits = [...new Set(undecided.map(({ waitingFor }) => waitingFor ?? ''))]
    const of = [...new Set(undecided.map(({ process }) => process))]
    yield condition('RunsAwaitDecision', {
      severity: 'info',
      title: `${counted(total(undecided), 'run waits', 'runs wait')} for a decision`,
      detail: listed(undecided.map(({ process, step }) => `${process}.${step ?? ''}`)),
      affected: total(undecided),
      page: runsPage({
        status: 'Waiting',
        waitingFor: waits,
        process: of.length === 1 ? (of[0] ?? null) : null,
      }),
    })
  }
  const closed = runsWaitingFor(installation, 'books')
  const nameOfWait = ({ waitingFor }: RunGroup): string => {
    const realm = realmWaitedFor(waitingFor)
    return (realm === null ? waitingFor : (nameIn(companyNames, realm) ?? realm)) ?? ''
  }
  const realms = new Set(closed.map(({ waitingFor }) => waitingFor))
  if (closed.length > 0)
    yield condition('RunsBooksClosed', {
      title: `${counted(total(closed), 'run waits', 'runs wait')} because the books of ${counted(realms.size, 'company', 'companies')} are closed`,
      detail: listed([...new Set(closed.map(nameOfWait))]),
      affected: total(closed),
      page: runsPage({ status: 'Waiting', class: 'books_closed' }),
    })
  // The condition of a faulted company has the number of the runs that wait for it.
  const waiting = runsWaitingFor(installation, 'credential')
  const known = new Set(faulted.map(({ Name }) => Name))
  const others = waiting.filter(({ waitingFor }) => !known.has(waitingFor ?? ''))
  const shown = others.length > 0 ? others : waiting
  const count = total(shown)
  if (count > 0) {
    const credentials = new Set(shown.map(({ waitingFor }) => waitingFor))
    yield condition('RunsWaiting', {
      title: `${counted(count, 'run waits', 'runs wait')} for ${counted(credentials.size, 'company', 'companies')}`,
      detail: listed([...new Set(shown.map(nameOfWait))]),
      affected: count,
      page: runsPage({ status: 'Waiting' }),
      isConsequence: others.length === 0,
    })
  }
}

/** Returns the groups of runs that wait for the decision of a person. */
const runsWaitingForDecisions = ({ processes: all }: Installation): readonly RunGroup[] =>
  (all ?? []).flatMap(({ groups, decisions = [] }) =>
    (groups ?? []).filter(
      ({ waitingFor, count }) =>
        count > 0 && decisions.some((event) => waitingFor === `event:${event}`),
    ),
  )

/**
 * Returns the address of the page that lists the runs matching a filter. Children are in the list, because the numbers of
 * the conditions count them.
 */
const runsPage = (filter: Readonly<Record<string, string | readonly string[] | null>>): string =>
  withQuery(pages.runs, { ...filter, children: true })

const total = (groups: readonly RunGroup[]): number =>
  groups.reduce((sum, { count }) => sum + count, 0)

function* processes({ processes: all }: Installation): Generator<Condition> {
  for (const { name, isPaused, pausedAt, pausedBy, reason } of all ?? []) {
    if (!isPaused) continue
    const held = runCounts(all, name)?.InFlight ?? 0
    yield condition('ProcessPaused', {
      key: name,
      ...(held === 0 && { severity: 'info' }),
      values: { process: name },
      detail: joined(
        byAndWhy(pausedBy, reason),
        held === 0 ? '' : `${counted(held, 'run does', 'runs do')} not continue`,
      ),
      knownSince: pausedAt,
      page: processPage(name),
      action: { Kind: 'resume_process', Process: name },
    })
  }
}

function* pausedCompanies({
  paused = [],
  companyNames = {},
  processes: all,
}: Installation): Generator<Condition> {
  for (const { Realm, PausedAt, PausedBy, Reason } of paused) {
    const CompanyName = nameIn(companyNames, Realm)
    const groups = (all ?? []).flatMap((process) => process.groups ?? [])
    const held = total(groups.filter(({ waitingFor }) => waitingFor === `paused:${Realm}`))
    yield condition('CompanyPaused', {
      key: Realm,
      ...(held === 0 && { severity: 'info' }),
      values: { realm: Realm },
      ...(CompanyName !== undefined && { title: `The runs of ${CompanyName} are paused` }),
      detail: joined(
        byAndWhy(PausedBy, Reason),
        held === 0 ? '' : counted(held, 'run waits', 'runs wait'),
      ),
      affected: held,
      knownSince: PausedAt === null ? null : Date.parse(PausedAt),
      page: companyPage(Realm),
      action: {
        Kind: 'resume_company',
        Realm,
        ...(CompanyName !== undefined && { CompanyName }),
      },
    })
  }
}

const byAndWhy = (by: string | null, reason: string | null): string =>
  [by === null ? '' : `by ${keyName(by)}`, reason === null ? '' : `“${reason}”`]
    .filter(Boolean)
    .join(': ')
