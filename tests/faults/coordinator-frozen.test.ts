import { setTimeout as delay } from 'node:timers/promises'
import type { ServerResponse } from 'node:http'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startSystem } from '../support/system.ts'
import { openBooks } from './support/books.ts'
import {
  addressOf,
  dyingMain,
  logged,
  orders,
  queueBulk,
  startBeside,
} from './support/coordinators.ts'
import { isFaultRun, scale } from './support/scale.ts'
import { startTarget } from './support/target.ts'

const ORDERS = 30
const FROZEN_MS = scale({ test: 3_000, faults: 45_000 })
/** In a fault run the service as it is, with its lease of 30 s. */
const times = isFaultRun
  ? { LOCAL_PULL_SECONDS: '1', REMOTE_PULL_SECONDS: '2' }
  : { LOCAL_PULL_SECONDS: '0.2', REMOTE_PULL_SECONDS: '0.3', LEASE_MS: '1500' }

describe('a coordinator that is frozen for longer than its lease', () => {
  it(
    'overwrites nothing when it wakes up with answers in its hands',
    async ({ annotate }) => {
      await using target = await startTarget()
      await using system = await startSystem([])
      const env = { DEMO_API_URL: target.url, ...times }
      const frozen = system.start('coordinator', env, dyingMain)
      await system.ready('coordinator')
      await using books = await openBooks(system)
      const held: ServerResponse[] = []
      target.intercept = (_, response) => held.push(response) > 0
      const wanted = orders(ORDERS, 'f')
      await queueBulk(system, frozen.url, wanted)
      await eventually(() => expect(held).toHaveLength(ORDERS))

      process.kill(frozen.pid, 'SIGSTOP')
      const thawsAt = performance.now() + FROZEN_MS
      target.intercept = null
      const other = startBeside(system, env, dyingMain)
      await addressOf(other)
      await eventually(
        async () => expect(await books.count()).toEqual({ headers: ORDERS, completed: ORDERS }),
        { seconds: 60 },
      )
      const rows = () => books.sql`
        select h.*, to_jsonb(i) as item from "Order_Header" h
        join "Order_Item" i using ("Process", "TransactionID", "ReplayID") order by 1, 2, 3, i."StepName"`
      const before = await rows()
      await delay(Math.max(0, thawsAt - performance.now()))
      // The answers are there before it can look whether its leases still are.
      for (const response of held)
        response.writeHead(201).end('{"Order":"stale","CreatedAt":"2020-01-01T00:00:00Z"}')
      process.kill(frozen.pid, 'SIGCONT')
      const refused = (): number =>
        logged(frozen, 'step outcome came too late') + logged(frozen, 'step lost its lease')
      await eventually(() => expect(refused()).toBe(ORDERS))
      expect(await rows()).toEqual(before)

      const more = orders(ORDERS, 'm')
      await queueBulk(system, frozen.url, more)
      await eventually(async () =>
        expect(await books.count()).toEqual({ headers: 2 * ORDERS, completed: 2 * ORDERS }),
      )
      const ids = [...wanted, ...more].map(({ TransactionID }) => TransactionID)
      expect(await books.balance(ids, target)).toEqual({ inDoubt: ORDERS, repeatedCalls: ORDERS })
      await annotate(
        `SIGSTOP for ${FROZEN_MS / 1_000} s with ${ORDERS} calls in hand: ${logged(frozen, 'step outcome came too late')} stale completions refused, ${logged(frozen, 'step lost its lease')} given up before, 0 overwrites; it works on afterwards`,
        'figure',
      )
    },
    FROZEN_MS + 90_000,
  )
})
