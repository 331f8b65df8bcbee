import { type CheckResult, ok, problem, warning } from './check-result.ts'

/** A look at another machine's clock. All times are epoch milliseconds. */
export interface ClockReading {
  readonly remoteAt: number
  /** Here, before it was asked and after it had answered. */
  readonly requestedAt: number
  readonly respondedAt: number
}

const WARNING_MS = 2_000
/** As long as a lease of a step: beyond it one machine takes another's for run out. */
const PROBLEM_MS = 30_000

/** The clock was read at some moment between question and answer: only a distance beyond that is skew. */
export function checkClock({ remoteAt, requestedAt, respondedAt }: ClockReading): CheckResult {
  const aheadMs = remoteAt - (requestedAt + respondedAt) / 2
  const uncertainMs = (respondedAt - requestedAt) / 2
  const skewMs = Math.max(0, Math.abs(aheadMs) - uncertainMs)
  if (skewMs < WARNING_MS) return ok('clock', 'agrees with this machine')
  const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1)
  const found = `${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} this machine`
  const remediation = 'Have both machines set their clocks by NTP (chrony, systemd-timesyncd).'
  return (skewMs < PROBLEM_MS ? warning : problem)('clock', found, remediation)
}

/** The clock of whoever sent an HTTP answer; null when it tells no time. `Date` is cut to the second. */
export function httpClock(
  answer: Response,
  requestedAt: number,
  respondedAt: number,
): ClockReading | null {
  const date = Date.parse(answer.headers.get('Date') ?? '')
  if (Number.isNaN(date)) return null
  return { remoteAt: date + 500, requestedAt: requestedAt - 500, respondedAt: respondedAt + 500 }
}
