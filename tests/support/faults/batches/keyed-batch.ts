import { createHash } from 'node:crypto'
import { defineProcess } from 'integration-host'
import { batchOf } from './batch.ts'

/** Sends a `requestid` of its own with the batch, which has 50 characters together with the `bId`. */
export default defineProcess('KeyedBatch').step('batch', (step) => {
  const requestid = createHash('sha256').update(step.idempotencyKey).digest('hex').slice(0, 14)
  return step.execute(
    { ...batchOf(step), query: { requestid } },
    { credential: `ACC-${step.realm}` },
  )
})
