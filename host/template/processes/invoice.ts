import { createHash } from 'node:crypto'
import { defineProcess, z } from 'integration-host'

const Customer = z.object({ Customer: z.object({ Id: z.string() }) })
const Invoice = z.object({ Invoice: z.object({ Id: z.string() }) })

/** Creates a customer and an invoice in a company's books. A transaction with other data is rejected when it is queued. */
export default defineProcess('Invoice', {
  input: z.object({ customer: z.string(), amount: z.number().positive() }),
})
  // The value that `parse` returns is the data of this step. The next step reads it as `step.previous.data`.
  .step('customer', (step) =>
    step.execute(
      { ...creating('customer', step), body: { DisplayName: step.initialData.customer } },
      { credential: `ACC-${step.realm}`, parse: (body) => Customer.parse(body).Customer.Id },
    ),
  )
  .step('invoice', (step) => {
    const line = {
      Amount: step.initialData.amount,
      DetailType: 'SalesItemLineDetail',
      SalesItemLineDetail: { ItemRef: { value: '1' } },
    }
    return step.execute(
      {
        ...creating('invoice', step),
        body: { CustomerRef: { value: step.previous.data }, Line: [line] },
      },
      { credential: `ACC-${step.realm}`, parse: (body) => Invoice.parse(body).Invoice.Id },
    )
  })

/**
 * Returns a call that creates an object in the company's books. The accounting API recognises a repeated call by its
 * `requestid`. Therefore the object is created only once, even if the machine fails between the call and its response.
 */
function creating(
  entity: string,
  step: { readonly realm: string | null; readonly idempotencyKey: string },
) {
  const requestid = createHash('sha256').update(step.idempotencyKey).digest('hex').slice(0, 32)
  return { url: `/v3/company/${step.realm}/${entity}`, method: 'POST', query: { requestid } }
}
