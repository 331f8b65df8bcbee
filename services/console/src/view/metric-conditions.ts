/**
 * The conditions that the console finds in the summaries of the metrics. Their limits and durations are those of the
 * alerts. Alerts on what happened within the last minutes need Prometheus.
 */
import { type ConditionName, durationMs } from '@integration-host/shared/conditions'
import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import { counted } from '../isomorphic/texts.ts'
import { entriesPage, pages, processPage } from '../isomorphic/pages.ts'
import { type Condition, condition, type Found } from './condition.ts'
import { type Installation, responding, summariesOf } from './installation.ts'

/** An access token that expires sooner should have been refreshed. */
const NEAR_EXPIRY_SECONDS = 120
const LATE_SECONDS = 300
const IDLE_SECONDS = 600
const LAG_MS = 250

/** Returns a condition that must last as long as its alert before it is shown. */
const lasting = (name: ConditionName, found: Found): Condition =>
  condition(name, { ...found, forMs: durationMs(name) })

export function* metricConditions(installation: Installation): Generator<Condition> {
  yield* ofTokenService(installation)
  yield* ofGateway(installation)
  yield* ofCoordinator(installation)
  for (const { name: service, replicas } of installation.services)
    for (const { address, misses, summary } of replicas)
      if (misses === 0 && summary !== null && summary.LagMs > LAG_MS)
        yield lasting('EventLoopLag', {
          key: `${service} ${address}`,
          values: { service, instance: address },
          labels: { service: [service] },
          detail: `The delay of its event loop is ${summary.LagMs} ms (99th percentile).`,
          page: pages.health,
        })
}

function* ofTokenService(installation: Installation): Generator<Condition> {
  const states = summariesOf(installation, 'token-service').flatMap(
    ({ TokenService }) => TokenService ?? [],
  )
  if (states.some(({ ClientRejected }) => ClientRejected))
    yield condition('ProviderClientRefused', {
      detail: 'No access token can be refreshed while the client credentials are rejected.',
      affected: installation.companies?.Total ?? 1,
    })
  const seconds = Math.min(
    ...states.map(({ NearestExpirySeconds }) => NearestExpirySeconds ?? Infinity),
  )
  if (seconds < NEAR_EXPIRY_SECONDS)
    yield lasting('TokenNearExpiry', {
      title: 'An access token is about to expire and was not refreshed',
      detail:
        seconds > 0
          ? `It expires in ${Math.round(seconds)} s, although refreshes start 10 minutes before.`
          : 'It has expired. Token-service is behind, or its refreshes fail.',
      page: pages.companies,
    })
}

function* ofGateway(installation: Installation): Generator<Condition> {
  const count = Math.max(
    0,
    ...summariesOf(installation, 'accounting-gateway').map(
      ({ Gateway }) => Gateway?.CoolingDown ?? 0,
    ),
  )
  if (count > 0)
    yield lasting('RealmsOnHold', {
      title: `${counted(count, 'company is', 'companies are')} in cool-down`,
      detail:
        'The provider keeps responding with 429, although the gateway keeps within its limits.',
      affected: count,
      page: pages.limits,
    })
}

type Counts = NonNullable<MetricsSummary['Coordinator']>

function* ofCoordinator(installation: Installation): Generator<Condition> {
  const replicas = summariesOf(installation, 'coordinator').flatMap(
    ({ Coordinator }) => Coordinator ?? [],
  )
  if (replicas.some(({ Online }) => Online === false))
    yield condition('InternetAway', {
      detail: 'Processes that need the internet pause, and continue by themselves.',
    })
  for (const [kind, count] of highest(replicas.map(({ Violations }) => Violations)))
    yield lasting('BooksOutOfBalance', {
      key: kind,
      values: { value: count, kind },
      labels: { kind: [kind] },
      affected: count,
      page: pages.health,
    })
  for (const [process, count] of highest(replicas.map(({ DeadLetters }) => DeadLetters)))
    yield condition('DeadMessages', {
      key: process,
      labels: { process: [process] },
      title: `${counted(count, 'dead letter')} of ${process}`,
      detail: 'Messages that no coordinator could read or assign to a run.',
      affected: count,
      page: processPage(process),
    })
  for (const { State, Entity, Count } of replicas[0]?.EntriesOutside ?? [])
    yield condition('EntriesOutside', {
      key: `${State} ${Entity}`,
      labels: { state: [State], entity: [Entity] },
      title: `${objectsText(Count, Entity)} that runs have written ${Count === 1 ? 'was' : 'were'} ${FOUND[State] ?? State} in the books`,
      detail: 'Found in the last day, when the change feed was compared with the entries of runs.',
      affected: Count,
      page: entriesPage({ state: State, entity: Entity }),
    })
  for (const { Process: process, Step: step } of replicas[0]?.Due ?? []) {
    const here = replicas.flatMap(({ Due }) =>
      Due.filter((one) => one.Process === process && one.Step === step),
    )
    yield* ofDueRuns(installation, { process, step }, here)
  }
}

/** Returns a number of objects as text, such as `2 sales receipts`. */
function objectsText(count: number, entity: string): string {
  const one = entity.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase()
  const many = one.endsWith('y')
    ? `${one.slice(0, -1)}ies`
    : `${one}${one.endsWith('s') ? 'es' : 's'}`
  return counted(count, one, many)
}

/** What was found out about objects, by the state of their entries. */
const FOUND: Readonly<Record<string, string>> = {
  ChangedOutside: 'changed',
  Voided: 'voided',
  Deleted: 'deleted',
  Missing: 'not found',
}

/** Returns the highest value of each member that is above 0. */
const highest = (
  counts: readonly Readonly<Record<string, number>>[],
): ReadonlyMap<string, number> =>
  new Map(
    counts
      .flatMap((one) => Object.entries(one))
      .filter(([, count]) => count > 0)
      .toSorted(([, one], [, other]) => one - other),
  )

/** `replicas` are the counts of each coordinator for this step. */
function* ofDueRuns(
  installation: Installation,
  { process, step }: { readonly process: string; readonly step: string },
  replicas: Counts['Due'],
): Generator<Condition> {
  const labels = { process: [process], step: [step] }
  const known = lateReason(installation, process)
  const about = {
    key: JSON.stringify([process, step]),
    labels,
    page: processPage(process),
    isConsequence: known?.isShown ?? false,
    ...(known !== null && { remedy: known.remedy }),
  } as const
  const count = Math.max(...replicas.map(({ Count }) => Count))
  const idle = Math.min(...replicas.map(({ IdleSeconds }) => IdleSeconds))
  if (count > 0 && idle > IDLE_SECONDS)
    yield lasting('RunsNotTaken', {
      ...about,
      title: `${counted(count, 'run is', 'runs are')} due at ${process}.${step}, and no worker claims ${count === 1 ? 'it' : 'them'}`,
      detail: known?.reason ?? 'No worker has finished this step for 10 minutes.',
      affected: count,
    })
  const oldest = Math.max(...replicas.map(({ OldestSeconds }) => OldestSeconds))
  if (oldest > LATE_SECONDS)
    yield lasting('RunsLate', {
      ...about,
      title: `Runs at ${process}.${step} are late`,
      detail:
        `The oldest has been due for ${Math.round(oldest / 60)} minutes. ${known?.reason ?? ''}`.trim(),
    })
}

interface LateReason {
  readonly reason: string
  readonly remedy: string
  /** Whether the reason has a condition of its own, so that late runs are only its consequence. */
  readonly isShown: boolean
}

/** Returns the reason why the due runs of a process are not claimed; `null` if the reason is not known. */
function lateReason(installation: Installation, process: string): LateReason | null {
  const coordinators = responding(installation, 'coordinator')
  const state = installation.processes?.find(({ name }) => name === process)
  if (coordinators.length === 0)
    return { reason: 'No coordinator responds.', remedy: 'Start a coordinator.', isShown: true }
  if (state?.isLoaded === false)
    return {
      reason: 'No coordinator has loaded the process.',
      remedy: 'Deploy its definition, or cancel its runs.',
      isShown: false,
    }
  if (state?.isPaused === true)
    return {
      reason: 'The process is paused.',
      remedy: 'Resume it when the reason is over.',
      isShown: true,
    }
  const isOffline = coordinators.every(({ summary }) => summary?.Coordinator?.Online === false)
  if (state?.needsInternet === true && isOffline)
    return {
      reason: 'The process needs the internet, and no probe reaches it.',
      remedy: 'Check the network of the coordinator. The steps start again by themselves.',
      isShown: true,
    }
  const waiting = coordinators.every(({ report }) => report?.status === 'waiting')
  if (waiting) {
    const [dependency] = Object.entries(coordinators[0]?.report?.dependencies ?? {}).find(
      ([, { status }]) => status !== 'up',
    ) ?? ['a dependency']
    return {
      reason: `The coordinator waits for ${dependency}.`,
      remedy: 'Restore this dependency. The steps start again by themselves.',
      isShown: true,
    }
  }
  return null
}
