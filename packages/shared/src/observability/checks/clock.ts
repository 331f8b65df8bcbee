import { type CheckResult, ok, problem, warning } from './check-result.ts'

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
