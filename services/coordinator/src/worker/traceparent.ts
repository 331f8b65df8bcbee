import { hash, randomBytes } from 'node:crypto'
import { keyText, type RunKey } from '../run/run.ts'

/** Returns the value of the `traceparent` header (W3C Trace Context §3.2) for a call that a run makes. */
export type Traceparents = (run: RunKey) => string

/**
 * The trace id is derived from the run. So it is the same on every replica and after every restart, and need not be
 * stored. The span id differs for each call: it consists of a random prefix, which all calls share, and a counter.
 * Random bytes for every span would cost more than the rest of this function.
 */
export function createTraceparents(): Traceparents {
  const prefix = randomBytes(4).toString('hex')
  let spans = 0
  return (run) => {
    const traceId = hash('sha256', keyText(run)).slice(0, 32)
    spans = (spans + 1) % 0x1_0000_0000
    return `00-${traceId}-${prefix}${spans.toString(16).padStart(8, '0')}-01`
  }
}
