import type { CredentialView } from '@integration-host/shared/contracts/credential'
import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import type { Installation, ProcessState, Replica, RunGroup } from '../src/view/installation.ts'

/** The value of `Installation.asOf` if all values of the installation are current. */
const CURRENT: Installation['asOf'] = { companies: null, processes: null }

/** An installation of which the console knows nothing yet. */
export const unknownInstallation: Installation = {
  services: [],
  metricsAt: null,
  companies: null,
  faulted: [],
  processes: null,
  asOf: CURRENT,
}

/** Returns a loaded process that is not paused. By default the coordinator has not counted its runs yet. */
export const processState = (
  name: string,
  groups: readonly RunGroup[] | null = null,
): ProcessState => ({
  name,
  isLoaded: true,
  needsInternet: false,
  isPaused: false,
  pausedAt: null,
  pausedBy: null,
  reason: null,
  countedAt: null,
  groups,
})

/** Returns a group of three runs that failed at the step `order` of `OrderProcess`. `over` replaces single members. */
export const runGroup = (over: Partial<RunGroup> = {}): RunGroup => ({
  process: 'OrderProcess',
  step: 'order',
  status: 'Failed',
  errorClass: null,
  providerError: null,
  waitingFor: null,
  count: 3,
  inDoubt: 0,
  endedAt: null,
  ...over,
})

/** The time of the fault of each {@link company}. */
export const AT = '2026-11-23T10:00:00.000Z'

/** Returns a company with the fault `invalid_grant`. */
export const company = (
  Name: string,
  State: CredentialView['State'],
  Label = '',
): CredentialView => ({
  Name,
  Environment: Name.slice(4),
  Expiry: AT,
  Status: 'faulted',
  State,
  Label,
  Tags: {},
  Version: 1,
  RefreshedAt: AT,
  Attempts: 1,
  Fault: { Code: 'invalid_grant', Message: '', At: AT, Attempts: 1 },
})

type Coordinator = NonNullable<MetricsSummary['Coordinator']>

/** Returns what a coordinator that has counted nothing reports. `over` replaces single members. */
export const coordinatorSummary = (over: Partial<Coordinator> = {}): Coordinator => ({
  Runs: {},
  Steps: {},
  Due: [],
  DeadLetters: {},
  Violations: {},
  Online: true,
  ...over,
})

/** Returns a replica that is ready. Of the summary of its metrics, `summary` replaces single members. */
export const replica = (
  summary: Partial<MetricsSummary> = {},
  over: Partial<Replica> = {},
): Replica => ({
  address: '10.0.0.1:80',
  misses: 0,
  since: 0,
  reason: null,
  report: { status: 'ready', dependencies: {} },
  summary: { Version: '1.2.3', StartedAt: AT, LagMs: 11, MemoryBytes: 100, ...summary },
  clockOffsetMs: 0,
  ...over,
})
