import { describe, expect, it } from 'vitest'
import { tracedPort, tracedStore, tracing } from './telemetry.ts'

describe('a port while tracing is off', () => {
  const port = { get: () => Promise.resolve('it') }

  it('is returned as it is, without a wrapper', () => {
    expect(tracing).toBeUndefined()
    expect(tracedPort(port, { get: { name: 'get', kind: 'internal' } })).toBe(port)
    expect(tracedStore('redis', port, ['get'])).toBe(port)
  })
})
