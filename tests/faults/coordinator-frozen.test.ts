import { setTimeout as delay } from 'node:timers/promises'
import type { ServerResponse } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import {
  countLogLines,
  orders,
  queueOrders,
  startAnotherCoordinator,
} from '../support/faults/coordinators.ts'
import { coordinatorWithFailpoints } from '../support/processes/failpoints.ts'
import { listeningUrl } from '@integration-host/shared/test-support/start-process'
import { isFaultRun, scale } from '../support/faults/scale.ts'
import { startStepTarget } from '../support/fakes/step-target.ts'

const ORDERS = 30
const FROZEN_MS = scale({ test: 3_000, faults: 45_000 })
/** In `npm run test:faults` the lease has its default length of 30 s. */
const timing = isFaultRun
  ? { LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }
  : { LOCAL_PULL_SECONDS: '0.2', REMOTE_PULL_SECONDS: '0.3', LEASE_MS: '1500' }

describe('a coordinator that is frozen for longer than its lease', () => {
  it(
    'a coordinator that was frozen for longer than its leases stores no response that arrived while it was frozen',
    async ({ annotate }) => {
      await using target = await startStepTarget()
      await using system = await startSystem([])
      const env = { DEMO_API_URL: target.url, ...timing }
      const frozen = system.start('coordinator', env, coordinatorWithFailpoints)
      await system.ready('coordinator')
      await using database = await openDatabase(system)
      const pending: ServerResponse[] = []
      target.intercept = (_, response) => pending.push(response) > 0
      const wanted = orders(ORDERS, 'f')
      await queueOrders(system, frozen.url, wanted)
      await eventually(() => expect(pending).toHaveLength(ORDERS))

      process.kill(frozen.pid, 'SIGSTOP')
      const continuesAt = performance.now() + FROZEN_MS
      target.intercept = null
      const other = startAnotherCoordinator(system, env, coordinatorWithFailpoints)
      await listeningUrl(other)
      await eventually(
        async () => expect(await database.countRuns()).toEqual({ runs: ORDERS, completed: ORDERS }),
        { seconds: 60 },
      )
      const rows = () => database.sql`
        select h.*, to_jsonb(i) as item from "Order_Header" h
        join "Order_Item" i using ("Process", "TransactionID", "ReplayID") order by 1, 2, 3, i."StepName"`
      const before = await rows()
      await delay(Math.max(0, continuesAt - performance.now()))
      // The responses arrive while the process is frozen. The process can check whether its leases have expired only
      // after it continues.
      for (const response of pending)
        response.writeHead(201).end('{"Order":"stale","CreatedAt":"2020-01-01T00:00:00Z"}')
      process.kill(frozen.pid, 'SIGCONT')
      const discarded = (): number =>
        countLogLines(frozen, 'step outcome was rejected because the lease was lost') +
        countLogLines(frozen, 'step lost its lease')
      await eventually(() => expect(discarded()).toBe(ORDERS))
      expect(await rows()).toEqual(before)

      const more = orders(ORDERS, 'm')
      await queueOrders(system, frozen.url, more)
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 2 * ORDERS, completed: 2 * ORDERS }),
      )
      const ids = [...wanted, ...more].map(({ TransactionID }) => TransactionID)
      expect(await database.expectConsistent(ids, target)).toEqual({
        inDoubt: ORDERS,
        repeatedCalls: ORDERS,
      })
      await annotate(
        `SIGSTOP for ${FROZEN_MS / 1_000} s with ${ORDERS} calls in flight: ${countLogLines(frozen, 'step outcome was rejected because the lease was lost')} late outcomes rejected, ${countLogLines(frozen, 'step lost its lease')} steps aborted before, no result overwritten; the coordinator continues to work`,
        'measurement',
      )
    },
    FROZEN_MS + 90_000,
  )
})
