import { defineProcess, z } from 'integration-host'
import line from './line.ts'

export default defineProcess('Batch', { input: z.array(z.number()) }).forEach('lines', line, {
  items: (step) => step.initialData.map((no) => ({ id: no, data: no })),
})
