import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { IntegrationError } from '@integration-host/shared/errors'
import { createLogger } from '@integration-host/shared/observability/logger'
import { type Clock, systemClock } from '@integration-host/shared/process/clock'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createMemoryTransactionSource } from '../adapters/memory/transaction-source.ts'
import type { TransactionSource } from '../run/transaction-source.ts'
import { type ChangeCursors, createChangeCursors } from './change-cursors.ts'
import { type FeedWatch, startFeedWatch } from './watch-feed.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

let now: number
let isActive: boolean
let connected: Set<string>
let sweeps: string[]
let lags: number[]
let polls: (() => Promise<number>)[]
let dataDir: string
let source: TransactionSource
let cursors: ChangeCursors
let watch: FeedWatch
beforeEach(async () => {
  now = Date.parse('2026-11-23T12:00:00Z')
  isActive = true
  connected = new Set(['1', '2'])
  sweeps = []
  lags = []
  polls = []
  dataDir = await mkdtemp(join(tmpdir(), 'feed-watch-'))
  source = await createMemoryTransactionSource(dataDir, { now: () => now })
  cursors = createChangeCursors(source)
  watch = start()
})
afterEach(async () => {
  await watch[Symbol.asyncDispose]()
  await source[Symbol.asyncDispose]()
  await rm(dataDir, { recursive: true })
})

/** A fake clock, whose repeated tasks run only when a test calls them. */
const clock: Clock = {
  ...systemClock,
  now: () => now,
  repeat(task) {
    polls.push(task)
    return { soon() {}, async [Symbol.asyncDispose]() {} }
  },
}
const start = (): FeedWatch =>
  startFeedWatch({
    cursors,
    companies: {
      async page(after) {
        if (connected.has('unavailable'))
          throw new IntegrationError('token_service_unavailable', 'unavailable')
        const realms = [...connected].toSorted().filter((realm) => realm > (after ?? ''))
        return { realms: realms.slice(0, 1), next: realms.length > 1 ? (realms[0] ?? null) : null }
      },
      async isConnected(realm) {
        if (realm === 'unavailable')
          throw new IntegrationError('token_service_unavailable', 'unavailable')
        return connected.has(realm)
      },
    },
    isActive: async () => isActive,
    async sweepAll(reason) {
      sweeps.push(reason)
    },
    async sweepOne(realm, id) {
      sweeps.push(`${realm} ${id}`)
    },
    log: createLogger('test', 'silent'),
    clock,
    random: () => 0,
    intervalMs: MINUTE,
    onLag: (lagMs) => lags.push(lagMs),
  })
/** Reports a webhook delivery and waits until its time is stored. */
async function deliver(): Promise<void> {
  watch.onDelivery()
  await watch[Symbol.asyncDispose]()
}

describe("a pause of the provider's webhook deliveries", () => {
  it('the first webhook delivery after a pause starts one sweep of all companies', async () => {
    await deliver()
    now += 3 * HOUR
    await deliver()
    await deliver()
    expect(sweeps).toEqual(['the provider had delivered nothing for 180 minutes'])
    now += 30 * MINUTE
    await deliver()
    expect(sweeps).toHaveLength(1)
  })

  it('after a pause of webhook deliveries, a second replica does not start another sweep', async () => {
    await deliver()
    now += 3 * HOUR
    await deliver()
    watch = start()
    await deliver()
    expect(sweeps).toHaveLength(1)
  })

  it('neither the very first webhook delivery nor a delivery while the change feed is not read starts a sweep', async () => {
    await deliver()
    isActive = false
    now += 3 * HOUR
    await deliver()
    expect(sweeps).toEqual([])
  })
})

describe('a company whose credential becomes usable', () => {
  it('a company whose credential becomes usable gets a cursor, at which its first sweep begins', async () => {
    await watch.onUsable('1')
    expect(await cursors.changeCursor('1')).toMatchObject({ lagMs: 0 })
    expect(sweeps).toEqual([])
  })

  it('an overdue sweep starts when the credential becomes usable, and its id stays the same until the cursor moves', async () => {
    await watch.onUsable('1')
    now += 27 * HOUR
    await watch.onUsable('1')
    await watch.onUsable('1')
    expect(sweeps).toEqual(Array(2).fill('1 overdue@2026-11-23T12:00:00.000Z/1'))
  })

  it('a company whose credential becomes usable gets no cursor while the change feed is not read', async () => {
    isActive = false
    await watch.onUsable('1')
    expect(await cursors.changeCursor('1')).toBeNull()
  })
})

const poll = () => polls.at(-1)?.()

describe('the cursors of connected companies', () => {
  it('connected companies get their cursors when the first process subscribes to changes', async () => {
    isActive = false
    await poll()
    expect(await cursors.oldestCursors(10)).toEqual([])
    isActive = true
    await poll()
    expect((await cursors.oldestCursors(10)).map(({ realm }) => realm)).toEqual(['1', '2'])
  })

  it('a connected company gets its cursor within an hour if the coordinator missed the event of its credential', async () => {
    await poll()
    connected.add('3')
    now += HOUR
    await poll()
    expect(await cursors.changeCursor('3')).toMatchObject({ lagMs: 0 })
  })

  it('a company that is connected again keeps its existing cursor', async () => {
    const { position } = await cursors.beginCursor('1')
    now += HOUR
    await poll()
    expect(await cursors.changeCursor('1')).toMatchObject({ position })
  })

  it('connected companies get their cursors when token-service becomes available again', async () => {
    connected.add('unavailable')
    await poll()
    expect(await cursors.oldestCursors(10)).toEqual([])
    connected.delete('unavailable')
    await poll()
    expect(await cursors.oldestCursors(10)).toHaveLength(2)
  })
})

describe('the lag of the change feeds', () => {
  it('the lag of the change feeds is the lag of the connected company with the oldest cursor', async () => {
    await cursors.beginCursor('1')
    now += HOUR
    await cursors.beginCursor('2')
    await poll()
    expect(lags).toEqual([HOUR])
  })

  it('a disconnected company does not count in the lag of the change feeds, and its cursor is removed', async () => {
    await cursors.beginCursor('removed')
    now += 27 * HOUR
    await poll()
    expect(lags).toEqual([0])
    expect(await cursors.changeCursor('removed')).toBeNull()
  })

  it('a connected company whose feed was not read for days counts in the lag of the change feeds', async () => {
    await cursors.beginCursor('1')
    now += 50 * HOUR
    await poll()
    expect(lags).toEqual([50 * HOUR])
    expect(await cursors.changeCursor('1')).not.toBeNull()
  })

  it('the lag of the change feeds keeps its last value while token-service is unavailable', async () => {
    await poll()
    lags = []
    await cursors.beginCursor('unavailable')
    now += 27 * HOUR
    for (const realm of connected)
      await cursors.moveCursor(realm, {
        position: new Date(now).toISOString(),
        events: 0,
        incomplete: null,
      })
    await poll()
    expect(lags).toEqual([])
    expect(await cursors.changeCursor('unavailable')).not.toBeNull()
  })

  it('the lag of the change feeds is 0 while no change feed is read', async () => {
    isActive = false
    await poll()
    expect(lags).toEqual([0])
  })
})
