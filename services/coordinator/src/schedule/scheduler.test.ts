import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { until } from '@integration-host/shared/test-support/eventually'
import { expect, it } from 'vitest'
import { anAct } from '../../test-support/act.ts'
import { aSearch } from '../../test-support/search.ts'
import { createMemoryTransactionSource } from '../adapters/memory/transaction-source.ts'
import type { ConnectedCompanies } from '../company/connected-companies.ts'
import { defineProcess } from '../step/define-process.ts'
import { createScheduleStore } from './schedule-store.ts'
import { startScheduler } from './scheduler.ts'

const PAGE = 50
const realms = Array.from({ length: 1_000 }, (_, n) => String(1_000 + n))
const definition = defineProcess('Monthly', {
  schedules: [{ name: 'monthly', cron: '0 6 1 * *', each: 'company', jitterSeconds: 3_600 }],
}).step('report', (step) => step.complete())

it('three schedulers queue one run for each of 1,000 companies, although token-service fails at every third page', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'scheduler-'))
  await using stack = new AsyncDisposableStack()
  stack.defer(() => rm(dataDir, { recursive: true }))
  const source = stack.use(await createMemoryTransactionSource(dataDir))
  const store = createScheduleStore(source)
  let calls = 0
  const companies: Pick<ConnectedCompanies, 'page'> = {
    async page(after) {
      calls += 1
      if (calls % 3 === 0) throw new IntegrationError('token_service_unavailable', 'unavailable')
      const start = after === null ? 0 : realms.indexOf(after) + 1
      const page = realms.slice(start, start + PAGE)
      return { realms: page, next: start + PAGE < realms.length ? (page.at(-1) ?? null) : null }
    },
  }
  let counted = 0
  const start = () =>
    stack.use(
      startScheduler({
        store,
        companies,
        publisher: { publishSteps() {} },
        processes: new Map([[definition.name, definition]]),
        log: createLogger('test', 'silent'),
        clock: systemClock,
        random: Math.random,
        intervalMs: 10,
        onRuns: (_process, _schedule, count) => {
          counted += count
        },
        onLags() {},
      }),
    )
  const schedulers = [start(), start(), start()]
  await until(async () => (await store.schedules()).rows.length === 1)
  await store.openTick(definition.name, 'monthly', anAct)
  for (const scheduler of schedulers) scheduler.soon()
  await until(async () => (await store.schedules()).rows[0]?.TickAt === null)
  await until(() => counted === realms.length)

  const { runs } = await source.search(aSearch(definition.name, { limit: 2_000 }))
  const found = runs.map(({ Realm }) => Realm ?? '')
  const delays = new Set(runs.map(({ NotBefore }) => NotBefore))
  expect(found.toSorted()).toEqual(realms)
  // The jitter of an hour spreads the start times of the runs.
  expect(delays.size).toBeGreaterThan(500)
})
