import { defineProcess, z } from 'integration-host'

const Sale = z.object({ customer: z.string(), amount: z.number().positive() })
const Customer = z.object({ Customer: z.object({ Id: z.string() }) })
const Invoice = z.object({ Invoice: z.object({ Id: z.string() }) })
const item = { DetailType: 'SalesItemLineDetail', SalesItemLineDetail: { ItemRef: { value: '1' } } }

/** Creates a customer and an invoice in a company's books. Other data is rejected when it is queued. */
export default defineProcess('Invoice', { input: Sale })
  .step('customer', (step) => {
    const body = { DisplayName: step.initialData.customer }
    return step.execute(
      { url: `/v3/company/${step.realm}/customer`, method: 'POST', body },
      // What `parse` returns is the data of the step: the next step reads it as `step.previous.data`.
      { credential: `ACC-${step.realm}`, parse: (created) => Customer.parse(created).Customer.Id },
    )
  })
  .step('invoice', (step) => {
    const Line = [{ ...item, Amount: step.initialData.amount }]
    const body = { CustomerRef: { value: step.previous.data }, Line }
    return step.execute(
      { url: `/v3/company/${step.realm}/invoice`, method: 'POST', body },
      { credential: `ACC-${step.realm}`, parse: (created) => Invoice.parse(created).Invoice.Id },
    )
  })
