import type { CredentialView } from '@integration-host/shared/contracts/credential'
import {
  CURRENT,
  type Installation,
  type ProcessState,
  type RunGroup,
} from '../src/view/installation.ts'

/** An installation of which the console knows nothing yet. */
export const unknownInstallation: Installation = {
  services: [],
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
