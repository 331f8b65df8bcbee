import { defineProcess, z } from 'integration-host'

export default defineProcess('InvoiceExport', { input: z.string() }).step('create', (step) =>
  step.execute(
    {
      method: 'POST',
      url: `/v3/company/${step.realm}/invoice`,
      body: {
        DocNumber: step.initialData,
        PrivateNote: 'a canary',
        Line: [{ Amount: 66, DetailType: 'SalesItemLineDetail' }],
      },
    },
    {
      credential: `ACC-${step.realm}`,
      parse: (body) => (body as { Invoice: { Id: string } }).Invoice.Id,
    },
  ),
)
