import { defineProcess } from 'integration-host'
import { batchOf } from './batch.ts'

/** Asks the accounting API whether a batch without a response has created its invoice. */
export default defineProcess('ConfirmedBatch').step(
  'batch',
  (step) => step.execute(batchOf(step), { credential: `ACC-${step.realm}` }),
  {
    confirm: async (step) => {
      const query = `select count(*) from Invoice where DocNumber = '${step.transactionId}'`
      const found = await step.find(
        { url: `/v3/company/${step.realm}/query`, query: { query } },
        {
          credential: `ACC-${step.realm}`,
          parse: (body) =>
            (body as { QueryResponse: { totalCount: number } }).QueryResponse.totalCount,
        },
      )
      return found?.data === 1 ? step.complete(null) : 'not_done'
    },
  },
)
