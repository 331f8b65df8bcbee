import { defineProcess } from 'integration-host'

/** Creates an invoice in the books of the company of the run. */
export default defineProcess('CrowdProcess').step('invoice', (step) =>
  step.execute(
    {
      url: `/v3/company/${step.realm}/invoice`,
      method: 'POST',
      query: { requestid: step.idempotencyKey.slice(-36) },
      body: { order: step.transactionId },
    },
    { credential: `ACC-${step.realm}` },
  ),
)
