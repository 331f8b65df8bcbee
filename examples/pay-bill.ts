import { defineProcess, type JsonInput, z } from 'integration-host'

const Bill = z.object({ vendor: z.string(), amount: z.number().positive(), bank: z.url() })
const Created = z.object({ Bill: z.object({ Id: z.string() }) })
const Statement = z.object({ found: z.boolean(), pages: z.int() })
const HOUR_MS = 3_600_000
const post = (realm: string | null, body: JsonInput, query = {}) =>
  ({ url: `/v3/company/${realm}/bill`, method: 'POST', body, query }) as const

export default defineProcess('PayBill', { input: Bill })
  .step(
    'draft',
    (step) => {
      const { vendor, amount } = step.initialData
      const Line = [{ Amount: amount, DetailType: 'AccountBasedExpenseLineDetail' }]
      return step.execute(post(step.realm, { VendorRef: { value: vendor }, Line }), {
        credential: `ACC-${step.realm}`,
        parse: (body) => Created.parse(body).Bill.Id,
      })
    },
    {
      undo: (step) => {
        const draft = { Id: step.item('draft').data, SyncToken: '0' }
        const request = post(step.realm, draft, { operation: 'delete' })
        return step.execute(request, { credential: `ACC-${step.realm}` })
      },
    },
  )
  .event('approved', {
    data: z.object({ approved: z.boolean(), note: z.string().max(500).optional() }),
    when: ({ initialData }) => initialData.amount > 10_000,
    timeoutSeconds: 3 * 86_400,
    ask: ({ initialData: { vendor, amount } }) => ({
      title: `Pay ${amount}?`,
      facts: { Vendor: vendor },
    }),
  })
  .step('pay', (step) => {
    if (step.previous.data?.approved === false) return step.fail('refused', { undo: true })
    const { bank, amount } = step.initialData
    return step.execute({ url: `${bank}/payments`, method: 'POST', body: { amount } })
  })
  .step(
    'statement',
    async (step) => {
      const page = step.state ?? 1
      const query = { page: String(page), payment: step.transactionId }
      const reply = await step.fetch({ url: `${step.initialData.bank}/statement`, query })
      const { found, pages } = reply.parse((body) => Statement.parse(body))
      step.report({ done: page, of: pages })
      if (found) return step.complete(page)
      return page < pages ? step.repeat(page + 1) : step.repeat(1, { afterMs: HOUR_MS })
    },
    { state: z.int() },
  )
  .change('cleared', {
    entity: 'Bill',
    id: (step) => step.item('draft').data,
    until: (bill) => bill['Balance'] === 0,
  })
