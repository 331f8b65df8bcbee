import { createHash } from 'node:crypto'
import { defineProcess, type Step, z } from 'integration-host'

const Sale = z.object({ customer: z.string(), amount: z.number().positive(), notify: z.url() })
const Customer = z.object({ Customer: z.object({ Id: z.string() }) })
const Invoice = z.object({ Invoice: z.object({ Id: z.string() }) })

export default defineProcess('InvoiceProcess', { input: Sale, requireInternet: true })
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
  .step(
    'notice',
    (step) =>
      step.execute({
        url: step.initialData.notify,
        method: 'POST',
        body: { text: `Invoice ${step.previous.data} for ${step.initialData.customer}` },
      }),
    {
      confirm: async (step) => {
        const query = { key: step.idempotencyKey }
        const sent = await step.find({ url: step.initialData.notify, query })
        return sent === null ? 'not_done' : step.complete()
      },
    },
  )

/**
 * Creates an entity in the company's books. The provider recognises a repeated call by its `requestid`, which has at
 * most 50 characters.
 */
function creating(entity: string, step: Pick<Step, 'realm' | 'idempotencyKey'>) {
  const requestid = createHash('sha256').update(step.idempotencyKey).digest('hex').slice(0, 32)
  return { url: `/v3/company/${step.realm}/${entity}`, method: 'POST', query: { requestid } }
}
