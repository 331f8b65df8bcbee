import { hash, randomBytes } from 'node:crypto'
import { keyText, type RunKey } from '../transaction/run.ts'

/**
 * A `traceparent` (W3C Trace Context §3.2): the trace is the run's, the same on every replica and after every
 * restart without being stored; the span is new for each use.
 */
export function traceparentOf(run: RunKey): string {
  const traceId = hash('sha256', keyText(run)).slice(0, 32)
  spans = (spans + 1) % 0x1_0000_0000
  return `00-${traceId}-${SPANS}${spans.toString(16).padStart(8, '0')}-01`
}

/** What all span ids of this process begin with; a random number for each would cost more than the rest. */
const SPANS = randomBytes(4).toString('hex')
let spans = 0
