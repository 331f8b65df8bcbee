import { createLogger } from '@integration-host/shared/observability/logger'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { CHANGE_PAUSE_MS, createReadAgain } from '../app/read-again.ts'
import { createActionAnnouncer } from './action-announcer.ts'
import type { ActionCounter } from './session/stores.ts'
import { createFrames } from './view/frames.ts'

/** Every page must show the action of another operator within this time. */
const LIMIT_MS = 2_000
/** The time of a request: to the shared store, from the browser to the console, and from the console to a service. */
const REQUEST_MS = 150

const logger = createLogger('console', 'silent')
const after = <Value>(ms: number, value: Value): Promise<Value> =>
  new Promise((resolve) => setTimeout(() => resolve(value), ms))

/** A counter in a store that needs some time for each request. */
function slowCounter(): ActionCounter {
  let number = 0
  return {
    increment: () => after(REQUEST_MS, (number += 1)),
    read: () => after(REQUEST_MS, number),
  }
}

describe('the time until another operator sees an action', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())

  /**
   * Starts two replicas of the console that share `counter`, and a tab at the second one. `readAgain` is how the console
   * reads the services.
   */
  function start(counter: ActionCounter | null, readAgain: () => Promise<void>) {
    /** The times at which the tab has begun to read. */
    const began: number[] = []
    /** The times at which the action was announced to the tab. */
    const announced: number[] = []
    const tab = createReadAgain(() => {
      began.push(performance.now())
      return after(REQUEST_MS, null)
    })
    const replicas = ['one', 'two'].map((boot) => {
      const frames = createFrames(boot, () => performance.now())
      if (boot === 'two')
        frames.listen(() => {
          announced.push(performance.now())
          tab.request(['run'], true)
        })
      return createActionAnnouncer({ counter, readAgain, frames, logger })
    })
    return { began, announced, tab, replicas }
  }

  it.each([
    ['at the same replica, while the services respond', 1, 0],
    ['at the same replica, while a service does not respond', 1, Infinity],
    ['at another replica, while the services respond', 0, 0],
    ['at another replica, while a service does not respond', 0, Infinity],
  ])(
    'an action %s is on every page within two seconds, whenever it happens and however busy the pages are',
    async (_, actingReplica, serviceMs) => {
      for (let phaseMs = 0; phaseMs < CHANGE_PAUSE_MS; phaseMs += 50) {
        const { began, announced, tab, replicas } = start(slowCounter(), () =>
          serviceMs === Infinity ? new Promise(() => {}) : after(serviceMs, undefined),
        )
        // Changes that are not actions keep the tab reading without an end.
        const changes = setInterval(() => tab.request(['run']), 25)
        await vi.advanceTimersByTimeAsync(5_000 + phaseMs)
        const actedAt = performance.now()
        replicas[actingReplica]?.acted()
        await vi.advanceTimersByTimeAsync(LIMIT_MS)
        const shown = began.find((at) => at >= (announced[0] ?? Infinity)) ?? Infinity
        expect(announced, `phase ${phaseMs}`).toHaveLength(1)
        expect(shown + REQUEST_MS - actedAt, `phase ${phaseMs}`).toBeLessThanOrEqual(LIMIT_MS)
        clearInterval(changes)
        tab.stop()
        const closed = Promise.all(replicas.map((replica) => replica[Symbol.asyncDispose]()))
        await vi.advanceTimersByTimeAsync(REQUEST_MS)
        await closed
      }
    },
  )
})
