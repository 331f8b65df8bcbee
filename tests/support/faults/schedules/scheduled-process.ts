import { defineProcess } from 'integration-host'

/** A process with sixty schedules. Each of them fires every minute. */
export default defineProcess('ScheduledProcess', {
  schedules: Array.from({ length: 60 }, (_, n) => ({
    name: `s${n}`,
    cron: '* * * * *',
    catchUp: 'all' as const,
  })),
}).step('note', (step) => step.complete(step.transactionId))
