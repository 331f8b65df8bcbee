import { createHash, randomBytes } from 'node:crypto'
import { keyText, type RunKey } from '../transaction/header.ts'

/**
 * A `traceparent` (W3C Trace Context §3.2): the trace is the run's, the same on every replica and after every
 * restart without being stored; the span is new for each use.
 */
export function traceparentOf(run: RunKey): string {
  const traceId = createHash('sha256').update(keyText(run)).digest('hex').slice(0, 32)
  return `00-${traceId}-${randomBytes(8).toString('hex')}-01`
}
