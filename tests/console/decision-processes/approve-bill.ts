import { defineProcess, z } from 'integration-host'

/** A process whose runs wait for a person who approves a bill. */
export default defineProcess('ApproveBill')
  .event('approved', {
    data: z.object({ approved: z.boolean(), note: z.string().max(500).optional() }),
    ask: () => ({ title: 'Pay 12,000?', facts: { Vendor: 'Acme', Due: '2026-12-01' } }),
  })
  .step('pay', (step) => step.complete(step.previous.data))
