import { describe, expect, it } from 'vitest'
import { readConfig } from './config.ts'

describe('TARGETS', () => {
  it('is a list of names and ports', () => {
    expect(readConfig({ TARGETS: 'token-service:7217, rabbitmq:15672' }).TARGETS).toEqual([
      { host: 'token-service', port: 7217 },
      { host: 'rabbitmq', port: 15672 },
    ])
  })

  it.each([
    undefined,
    'token-service',
    'token-service:0',
    'a:70000',
    'a:80,b:80',
    '7217:a',
    'a:1,',
  ])('is refused as %s', (TARGETS) => {
    expect(() => readConfig({ TARGETS })).toThrow('TARGETS')
  })
})
