import { describe, expect, it, vi } from 'vitest'
import { StepAbort } from './step-abort.ts'

describe('the stop of a step', () => {
  it('holds back what has not left before it ends all, and tells of both', () => {
    const stop = new StepAbort()
    const told = vi.fn<() => void>()
    stop.watch(told)
    expect([stop.areNewCallsBlocked, stop.reason]).toEqual([false, null])
    stop.blockNewCalls()
    expect([stop.areNewCallsBlocked, stop.reason]).toEqual([true, null])
    stop.stop('leaving')
    expect([stop.areNewCallsBlocked, stop.reason]).toEqual([true, 'leaving'])
    expect(told).toHaveBeenCalledTimes(2)
  })

  it('keeps its first reason', () => {
    const stop = new StepAbort()
    stop.stop('lost')
    stop.stop('timeout')
    expect(stop.reason).toBe('lost')
    expect(stop.areNewCallsBlocked).toBe(true)
  })

  it('tells nobody who has gone', () => {
    const stop = new StepAbort()
    const told = vi.fn<() => void>()
    stop.watch(told)
    stop.unwatch(told)
    stop.stop('lost')
    expect(told).not.toHaveBeenCalled()
  })

  it.each(['before', 'after'])('aborts a signal that was asked for %s it', (when) => {
    const stop = new StepAbort()
    const early = when === 'before' ? stop.signal : null
    stop.blockNewCalls()
    expect(early?.aborted ?? false).toBe(false)
    stop.stop('timeout')
    const { signal } = stop
    expect(early ?? signal).toBe(signal)
    expect([signal.aborted, signal.reason]).toEqual([true, 'timeout'])
  })
})
