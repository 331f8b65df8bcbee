import { defineProcess, ProviderChange } from 'integration-host'

// The name is that of the order process, so that the tests remove the queues.
export default defineProcess('OrderProcess', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update', 'delete'] }],
  input: ProviderChange,
}).step('order', (step) => step.complete())
