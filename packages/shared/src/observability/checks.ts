/**
 * The result of one check of a backend or another service. The check is made by `integration-host doctor` or by a
 * service that depends on the backend.
 */
export interface CheckResult {
  readonly check: string
  readonly verdict: 'ok' | 'warning' | 'problem' | 'skipped'
  readonly found: string
  /** The action that an operator should take; `null` if no action is needed. */
  readonly remedy: string | null
}

export const ok = (check: string, found: string): CheckResult => ({
  check,
  verdict: 'ok',
  found,
  remedy: null,
})

const result =
  (verdict: 'warning' | 'problem' | 'skipped') =>
  (check: string, found: string, remedy: string): CheckResult => ({ check, verdict, found, remedy })

/** Returns the result for a backend that works but has a problem, or will soon stop working. */
export const warning = result('warning')
/** Returns the result for a backend that does not work or that may lose data. */
export const problem = result('problem')
/** Returns the result for a check that could not be made; `remedy` says what the check needs. */
export const skipped = result('skipped')

/**
 * Returns whether a version is at least this major and minor version; false if the text does not begin with a number.
 */
function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [, first = '-1', second = '0'] = /^(\d+)(?:\.(\d+))?/.exec(version) ?? []
  return Number(first) > major || (Number(first) === major && Number(second) >= minor)
}

/** The oldest version of each backend that the services support. */
const NEEDED_VERSIONS = {
  postgres: [14, 0], // the oldest release that the PostgreSQL project still maintains
  redis: [6, 2], // the first release with GETDEL, which a single-use authorization needs
  rabbitmq: [3, 10], // the first release with message TTL and at-least-once dead lettering in quorum queues
} as const

/** Checks that a backend is new enough; `version` is the text that the backend reports. */
export function checkVersion(backend: keyof typeof NEEDED_VERSIONS, version: string): CheckResult {
  const needed = NEEDED_VERSIONS[backend]
  return isAtLeast(version, needed)
    ? ok('version', version)
    : problem('version', version, `Upgrade to ${needed.join('.')} or newer.`)
}

/**
 * An error for a backend that must not be used until an operator has fixed the problem. The error's message contains no
 * secret.
 */
export class UnsupportedBackend extends Error {
  override readonly name = 'UnsupportedBackend'

  constructor({ check, found, remedy }: CheckResult, options?: ErrorOptions) {
    super(`${check}: ${found}. ${remedy ?? ''}`.trimEnd(), options)
  }
}

/**
 * Throws if a check result says that the backend must not be used. Warnings are accepted.
 * @throws {UnsupportedBackend} if a result is a problem; the error describes the first problem.
 */
export function throwOnProblem(results: readonly CheckResult[]): void {
  const found = results.find(({ verdict }) => verdict === 'problem')
  if (found !== undefined) throw new UnsupportedBackend(found)
}

/** A reading of another machine's clock. All times are epoch milliseconds. */
export interface ClockReading {
  readonly remoteAt: number
  /** The local time before the request. `respondedAt` is the local time after the response. */
  readonly requestedAt: number
  readonly respondedAt: number
}

const WARNING_MS = 2_000
/**
 * The duration of a step's lease in milliseconds. A machine whose clock differs by more could regard a valid lease of
 * another machine as expired.
 */
const PROBLEM_MS = 30_000

/**
 * Checks the difference between the clocks of two machines. The other clock was read at an unknown moment between
 * request and response, so a difference that is smaller than the response time is ignored.
 */
export function checkClock({ remoteAt, requestedAt, respondedAt }: ClockReading): CheckResult {
  const aheadMs = remoteAt - (requestedAt + respondedAt) / 2
  const uncertainMs = (respondedAt - requestedAt) / 2
  const skewMs = Math.max(0, Math.abs(aheadMs) - uncertainMs)
  if (skewMs < WARNING_MS) return ok('clock', 'agrees with this machine')
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1)
  const found = `${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} this machine`
  const remedy = 'Have both machines set their clocks by NTP (chrony, systemd-timesyncd).'
  return (skewMs < PROBLEM_MS ? warning : problem)('clock', found, remedy)
}

/**
 * Returns the time of a server's clock from the `Date` header of a response; `null` if there is no valid `Date` header.
 * The header has a precision of one second.
 */
export function httpClock(
  response: { readonly headers: Pick<Headers, 'get'> },
  requestedAt: number,
  respondedAt: number,
): ClockReading | null {
  const date = Date.parse(response.headers.get('Date') ?? '')
  if (Number.isNaN(date)) return null
  return { remoteAt: date + 500, requestedAt: requestedAt - 500, respondedAt: respondedAt + 500 }
}
