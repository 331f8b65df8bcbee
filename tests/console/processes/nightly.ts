import { defineProcess } from 'integration-host'

/** A process that begins by itself once a year, so that no test sees it begin. */
export default defineProcess('Nightly', {
  schedules: [{ name: 'yearly', cron: '0 3 1 1 *', timeZone: 'UTC' }],
}).step('note', (step) => step.complete(step.transactionId))
