import { defineProcess } from 'integration-host'

/** A process whose schedule fires once a year, so that it does not fire during a test. */
export default defineProcess('Nightly', {
  schedules: [{ name: 'yearly', cron: '0 3 1 1 *', timeZone: 'UTC' }],
}).step('note', (step) => step.complete(step.transactionId))
