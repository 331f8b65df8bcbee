import { describe, expect, it } from 'vitest'
import { tracedPort, tracedStore, tracing } from './telemetry.ts'

describe('disabled tracing', () => {
  const port = { get: () => Promise.resolve('it') }

  it('tracedPort and tracedStore return their argument unchanged while tracing is disabled', () => {
    expect(tracing).toBeUndefined()
    expect(tracedPort(port, { get: { name: 'get', kind: 'internal' } })).toBe(port)
    expect(tracedStore('redis', port, ['get'])).toBe(port)
  })
})
