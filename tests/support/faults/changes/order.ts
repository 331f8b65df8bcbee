import { defineProcess, ProviderChange } from 'integration-host'

// The process has the name OrderProcess, because the tests remove the queues of that name.
export default defineProcess('OrderProcess', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['create', 'update', 'delete'] }],
  input: ProviderChange,
}).step('order', (step) => step.complete())
