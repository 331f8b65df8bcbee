import { hash } from 'node:crypto'
import { keyText, type RunKey } from '../transaction/header.ts'

/**
 * A `traceparent` (W3C Trace Context §3.2): the trace is the run's, the same on every replica and after every
 * restart without being stored; the span is new for each use.
 */
export function traceparentOf(run: RunKey): string {
  const traceId = hash('sha256', keyText(run)).slice(0, 32)
  // A UUID's last part is 48 random bits, its first 32: they are made in advance, unlike random bytes.
  const uuid = crypto.randomUUID()
  return `00-${traceId}-${uuid.slice(-12)}${uuid.slice(0, 4)}-01`
}
