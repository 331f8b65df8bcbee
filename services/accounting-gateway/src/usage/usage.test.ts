import type { Clock } from '@integration-host/shared/process/clock'
import { describe, expect, it, vi } from 'vitest'
import {
  createMemoryUsageStore,
  type CallCounts,
  kindOf,
  meteredOf,
  startUsage,
  type UsageStore,
} from './usage.ts'
import { describeUsageStore } from './usage-store.contract.ts'

describeUsageStore('memory', async () => ({
  store: createMemoryUsageStore(),
  [Symbol.asyncDispose]: async () => {},
}))

/** A clock whose repeated task runs only when the test calls `tick`. */
function manualClock(start: string) {
  let now = Date.parse(start)
  let task = (): Promise<number> => Promise.resolve(0)
  const clock: Clock = {
    now: () => now,
    setTimeout: () => {
      throw new Error('not used')
    },
    repeat(given) {
      task = given
      return { soon() {}, [Symbol.asyncDispose]: async () => {} }
    },
  }
  return { clock, tick: () => task(), set: (time: string) => void (now = Date.parse(time)) }
}

function started(store: UsageStore, start = '2026-11-30T23:59:59Z') {
  const manual = manualClock(start)
  const onTotal = vi.fn<(total: CallCounts) => void>()
  const onError = vi.fn<(error: unknown) => void>()
  const usage = startUsage({ store, clock: manual.clock, onCall() {}, onTotal, onError })
  return { ...manual, usage, onTotal, onError }
}

describe('the kinds of calls', () => {
  it.each([
    ['GET', 'query?query=select', 'query'],
    ['POST', 'query', 'query'],
    ['GET', 'cdc?entities=Invoice', 'cdc'],
    ['GET', 'reports/ProfitAndLoss', 'report'],
    ['POST', 'batch', 'batch'],
    ['POST', 'Batch?requestid=1', 'batch'],
    ['POST', 'upload', 'attachment'],
    ['GET', 'companyinfo/1', 'read'],
    ['POST', 'invoice?operation=delete', 'core'],
    ['DELETE', 'invoice', 'core'],
    ['GET', '', 'read'],
  ])('the request %s …/%s is counted as a call of kind %s', (method, path, kind) => {
    expect(kindOf(method, `/v3/company/1/${path}`)).toBe(kind)
  })

  it('every kind of call except the kind core is metered', () => {
    expect(
      meteredOf({ core: 7, read: 1, query: 2, cdc: 3, report: 4, batch: 5, attachment: 6 }),
    ).toBe(21)
  })
})

describe('how the gateway counts calls', () => {
  it('a call is counted in the month in which it was made', async () => {
    const store = createMemoryUsageStore()
    const { usage, set, tick, onTotal } = started(store)
    usage.count('1', 'GET', '/v3/company/1/cdc')
    set('2026-12-01T00:00:00Z')
    usage.count('1', 'GET', '/v3/company/1/cdc')
    usage.count('1', 'POST', '/v3/company/1/invoice')
    await tick()
    expect(await store.find('2026-11', '1')).toEqual({ cdc: 1 })
    expect(await store.find('2026-12', '1')).toEqual({ cdc: 1, core: 1 })
    expect(onTotal).toHaveBeenCalledExactlyOnceWith({ cdc: 1, core: 1 })
  })

  it('while the usage store is unavailable, the gateway keeps its counts, reports the failure once, and stores the counts later', async () => {
    const memory = createMemoryUsageStore()
    let isDown = true
    const store: UsageStore = {
      ...memory,
      add: async (month, added) => {
        if (isDown) throw new Error('down')
        await memory.add(month, added)
      },
    }
    const { usage, tick, onError } = started(store)
    for (let n = 0; n < 3; n += 1) {
      usage.count('1', 'GET', '/v3/company/1/invoice/2')
      await tick()
    }
    expect(onError).toHaveBeenCalledOnce()
    isDown = false
    await tick()
    expect(await memory.find('2026-11', '1')).toEqual({ read: 3 })
  })

  it('counts that were not stored yet are stored at shutdown', async () => {
    const store = createMemoryUsageStore()
    const { usage } = started(store)
    usage.count('1', 'GET', '/v3/company/1/invoice/2')
    await usage[Symbol.asyncDispose]()
    expect(await store.total('2026-11')).toEqual({ read: 1 })
  })
})
