import { defineProcess, z } from 'integration-host'

/** Calls a target that accepts one call at a time. The initial data is the path of the call. */
export default defineProcess('LimitedProcess', {
  input: z.string(),
  settings: { url: z.url() },
  targets: ({ url }) => ({ erp: { url, concurrent: 1, timeoutMs: 1_000 } }),
}).step('call', (step) => step.execute({ target: 'erp', path: step.initialData, method: 'POST' }))
