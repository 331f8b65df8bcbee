import { describe, expect, it, vi } from 'vitest'
import { StepAbort } from './step-abort.ts'

describe('the abort of a step', () => {
  it('listeners are notified when new calls of a step are blocked and when the step is aborted', () => {
    const abort = new StepAbort()
    const notified = vi.fn<() => void>()
    abort.watch(notified)
    expect([abort.areNewCallsBlocked, abort.reason]).toEqual([false, null])
    abort.blockNewCalls()
    expect([abort.areNewCallsBlocked, abort.reason]).toEqual([true, null])
    abort.abort('shutdown')
    expect([abort.areNewCallsBlocked, abort.reason]).toEqual([true, 'shutdown'])
    expect(notified).toHaveBeenCalledTimes(2)
  })

  it('a step that is aborted several times keeps the first abort reason', () => {
    const abort = new StepAbort()
    abort.abort('lease_lost')
    abort.abort('timeout')
    expect(abort.reason).toBe('lease_lost')
    expect(abort.areNewCallsBlocked).toBe(true)
  })

  it('a listener is not notified of an abort after unwatch()', () => {
    const abort = new StepAbort()
    const notified = vi.fn<() => void>()
    abort.watch(notified)
    abort.unwatch(notified)
    abort.abort('lease_lost')
    expect(notified).not.toHaveBeenCalled()
  })

  it.each(['before', 'after'])(
    'if a step reads its AbortSignal %s the abort, the signal is aborted with the abort reason',
    (when) => {
      const abort = new StepAbort()
      const early = when === 'before' ? abort.signal : null
      abort.blockNewCalls()
      expect(early?.aborted ?? false).toBe(false)
      abort.abort('timeout')
      const { signal } = abort
      expect(early ?? signal).toBe(signal)
      expect([signal.aborted, signal.reason]).toEqual([true, 'timeout'])
    },
  )
})
