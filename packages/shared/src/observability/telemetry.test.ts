import { describe, expect, it } from 'vitest'
import { tracedPort, tracedStore, tracing } from './telemetry.ts'

describe('tracing that is off', () => {
  const port = { get: () => Promise.resolve('it') }

  it('returns a port and a store unchanged while tracing is off', () => {
    expect(tracing).toBeUndefined()
    expect(tracedPort(port, { get: { name: 'get', kind: 'internal' } })).toBe(port)
    expect(tracedStore('redis', port, ['get'])).toBe(port)
  })
})
