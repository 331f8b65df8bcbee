import { describe, expect, it, vi } from 'vitest'
import { StepStop } from './step-stop.ts'

describe('the stop of a step', () => {
  it('holds back what has not left before it ends all, and tells of both', () => {
    const stop = new StepStop()
    const told = vi.fn<() => void>()
    stop.watch(told)
    expect([stop.isHeldBack, stop.reason]).toEqual([false, null])
    stop.holdBack()
    expect([stop.isHeldBack, stop.reason]).toEqual([true, null])
    stop.stop('leaving')
    expect([stop.isHeldBack, stop.reason]).toEqual([true, 'leaving'])
    expect(told).toHaveBeenCalledTimes(2)
  })

  it('keeps its first reason', () => {
    const stop = new StepStop()
    stop.stop('lost')
    stop.stop('timeout')
    expect(stop.reason).toBe('lost')
    expect(stop.isHeldBack).toBe(true)
  })

  it('tells nobody who has gone', () => {
    const stop = new StepStop()
    const told = vi.fn<() => void>()
    stop.watch(told)
    stop.unwatch(told)
    stop.stop('lost')
    expect(told).not.toHaveBeenCalled()
  })

  it.each(['before', 'after'])('aborts a signal that was asked for %s it', (when) => {
    const stop = new StepStop()
    const early = when === 'before' ? stop.signal : null
    stop.holdBack()
    expect(early?.aborted ?? false).toBe(false)
    stop.stop('timeout')
    const { signal } = stop
    expect(early ?? signal).toBe(signal)
    expect([signal.aborted, signal.reason]).toEqual([true, 'timeout'])
  })
})
