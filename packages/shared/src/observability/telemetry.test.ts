import { describe, expect, it } from 'vitest'
import { tracedPort, tracedStore, tracing } from './telemetry.ts'

describe('a port while nothing is traced', () => {
  const port = { get: () => Promise.resolve('it') }

  it('is the port itself: nothing is wrapped', () => {
    expect(tracing).toBeUndefined()
    expect(tracedPort(port, { get: { name: 'get', kind: 'internal' } })).toBe(port)
    expect(tracedStore('redis', port, ['get'])).toBe(port)
  })
})
