import { defineProcess } from 'integration-host'
import { batchOf } from './batch.ts'

/** Has neither a `confirm` nor a `requestid`, so a batch without a response is executed again. */
export default defineProcess('PlainBatch').step('batch', (step) =>
  step.execute(batchOf(step), { credential: `ACC-${step.realm}` }),
)
