import { defineProcess, z } from 'integration-host'

const Sale = z.object({ customer: z.string(), amount: z.number().positive(), notify: z.url() })
const Customer = z.object({ Customer: z.object({ Id: z.string() }) })
const Invoice = z.object({ Invoice: z.object({ Id: z.string() }) })
const item = { DetailType: 'SalesItemLineDetail', SalesItemLineDetail: { ItemRef: { value: '1' } } }

export default defineProcess('InvoiceProcess', { input: Sale, requireInternet: true })
  .step('customer', (step) => {
    const body = { DisplayName: step.initialData.customer }
    return step.execute(
      { url: `/v3/company/${step.realm}/customer`, method: 'POST', body },
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
  .step(
    'notice',
    (step) => {
      const body = { text: `Invoice ${step.previous.data} for ${step.initialData.customer}` }
      return step.execute({ url: step.initialData.notify, method: 'POST', body })
    },
    {
      confirm: async (step) => {
        const query = { key: step.idempotencyKey }
        const sent = await step.find({ url: step.initialData.notify, query })
        return sent === null ? 'not_done' : step.complete()
      },
    },
  )
