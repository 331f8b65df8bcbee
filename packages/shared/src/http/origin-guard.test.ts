import { expect, it } from 'vitest'
import { isLoopback } from './origin-guard.ts'

it.each(['localhost', '127.0.0.1', '127.10.0.2', '[::1]'])(
  'isLoopback accepts %s as a loopback host',
  (name) => {
    expect(isLoopback(name)).toBe(true)
  },
)

it.each([
  '',
  '0.0.0.0',
  '[::]',
  '128.0.0.1',
  '127.1',
  '127.example.com',
  '127.0.0.1.example.com',
  'localhost.example.com',
  '[::ffff:127.0.0.1]',
])('isLoopback rejects %j as a loopback host', (name) => {
  expect(isLoopback(name)).toBe(false)
})
