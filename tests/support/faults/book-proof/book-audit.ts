import { defineProcess, EntryChange } from 'integration-host'

export default defineProcess('BookAudit', {
  input: EntryChange,
  on: [{ entry: ['changed', 'deleted', 'missing'], entity: 'Invoice' }],
}).step('note', (step) => step.complete(step.initialData))
