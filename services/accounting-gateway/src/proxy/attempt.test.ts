import { EventEmitter } from 'node:events'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { Attempt } from './attempt.ts'
import type { CallerResponse } from './call-types.ts'

/** A caller's response. While `isFull` is true, the caller does not read. */
class FakeResponse extends EventEmitter implements CallerResponse {
  headersSent = false
  writableEnded = false
  destroyed = false
  isFull = false
  readonly statusCode = 200
  readonly socket = null

  get writableFinished(): boolean {
    return this.writableEnded
  }
  writeInformation(): void {}
  writeHead(): void {
    this.headersSent = true
  }
  flushHeaders(): void {}
  write(): boolean {
    return !this.isFull
  }
  addTrailers(): void {}
  end(): void {
    this.writableEnded = true
  }
  destroy(): void {
    this.destroyed = true
  }
}

describe('the minimum rate of a response after the deadline', () => {
  let response: FakeResponse
  let attempt: Attempt
  const abort = vi.fn<() => void>()

  beforeEach(() => {
    vi.useFakeTimers()
    abort.mockReset()
    response = new FakeResponse()
    const request = { rawHeaders: [], headers: {}, httpVersion: '1.1', complete: true }
    attempt = new Attempt({ request, response, bearer: 'x', judge: () => ({ add: [] }) })
    attempt.onStart({ isSent: true, pause() {}, resume() {}, abort })
    attempt.onHeaders(200, [])
    attempt.onData(Buffer.alloc(1_000_000))
    attempt.requireMinimumRate()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  /** Advances the clock by one minute, in which one chunk of `bytesPerSecond` bytes arrives per second. */
  const minute = (bytesPerSecond: number): void => {
    for (let second = 0; second < 60; second += 1) {
      if (bytesPerSecond > 0) attempt.onData(Buffer.alloc(bytesPerSecond))
      vi.advanceTimersByTime(1_000)
    }
  }

  it('the gateway truncates a response if its body arrives at one byte per second, and aborts the upstream request', async () => {
    minute(1)
    expect(await attempt.ended).toEqual({ kind: 'cut', status: 200 })
    expect(response.destroyed).toBe(true)
    expect(abort).toHaveBeenCalledOnce()
  })

  it('the gateway does not truncate a response whose body arrives at 1 KiB per second for an hour', async () => {
    for (let passed = 0; passed < 60; passed += 1) minute(1_024)
    attempt.onEnd([])
    expect(await attempt.ended).toMatchObject({ kind: 'relayed', status: 200 })
    expect(vi.getTimerCount()).toBe(0)
  })

  it('the gateway truncates a response whose body arrives fast in one minute and too slowly in the next', async () => {
    minute(1_024)
    expect(response.destroyed).toBe(false)
    minute(1)
    expect(await attempt.ended).toEqual({ kind: 'cut', status: 200 })
  })

  it('the gateway does not truncate a response while the caller reads slowly, because upstream is not at fault', () => {
    for (let passed = 0; passed < 10; passed += 1) {
      response.isFull = true
      attempt.onData(Buffer.alloc(1))
      vi.advanceTimersByTime(30_000)
      response.emit('drain')
      vi.advanceTimersByTime(30_000)
    }
    expect(response.destroyed).toBe(false)
  })
})
