import { defineProcess, z } from 'integration-host'

/** A process whose only step sends a request to the URL in the initial data. */
export default defineProcess('ReportSale', { input: z.url() }).step('report', (step) =>
  step.execute({ url: step.initialData, method: 'POST', body: {} }),
)
