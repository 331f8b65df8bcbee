import { defineProcess, secret, z } from 'integration-host'

const Ordered = z.object({ id: z.string() })
const Report = z.object({ rows: z.number() })

export default defineProcess('ReportProcess', {
  input: z.object({ month: z.string().regex(/^\d{4}-\d{2}$/) }),
  settings: {
    erpUrl: z.url(),
    erpKey: secret(),
    pollSeconds: z.coerce.number().positive().default(30),
  },
  targets: ({ erpUrl, erpKey }) => ({
    erp: { url: erpUrl, auth: { bearer: erpKey }, timeoutMs: 10_000 },
  }),
})
  .step('order', (step) =>
    step.execute(
      { target: 'erp', path: '/reports', method: 'POST', body: { month: step.initialData.month } },
      { parse: (body) => Ordered.parse(body).id },
    ),
  )
  .step('rows', async (step) => {
    const report = await step.fetch({ target: 'erp', path: `/reports/${step.previous.data}` })
    if (report.status === 202) return step.waitFor(step.settings.pollSeconds * 1_000)
    if (!report.ok) return step.fail(`the report ended with ${report.status}`)
    return step.complete(report.parse((body) => Report.parse(body).rows))
  })
