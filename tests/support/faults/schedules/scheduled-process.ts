import { defineProcess } from 'integration-host'

/** Sixty schedules that fire every minute, which is sixty times a minute. */
export default defineProcess('ScheduledProcess', {
  schedules: Array.from({ length: 60 }, (_, n) => ({
    name: `s${n}`,
    cron: '* * * * *',
    catchUp: 'all' as const,
  })),
}).step('note', (step) => step.complete(step.transactionId))
