import { defineProcess, z } from 'integration-host'

export default defineProcess('Line', { input: z.number() }).step('post', (step) =>
  step.initialData === 2 ? step.fail('the line is wrong') : step.complete(),
)
