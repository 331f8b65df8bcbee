import { expect, it } from 'vitest'
import { namesInstead, similarName } from './similar-name.ts'

it.each([
  ['timeout', 'timeoutMs'],
  ['bdoy', 'body'],
  ['credentials', 'credential'],
  ['xy', undefined],
  ['reason', undefined],
  ['x'.repeat(31), undefined],
])('of the known names, %s probably means %s', (given, meant) => {
  expect(similarName(given, ['credential', 'timeoutMs', 'body', 'a'.repeat(31)])).toBe(meant)
})

it('an error about an unknown name ends with the similar name, with all names, or with the first ten of them', () => {
  const many = Array.from({ length: 13 }, (_, index) => `s${index}`)
  expect(namesInstead('approve', ['approved', 'paid'], 'events')).toBe(': did you mean approved?')
  expect(namesInstead('other', ['approved', 'paid'], 'events')).toBe(
    ': its events are approved, paid',
  )
  expect(namesInstead('other', [], 'events')).toBe(': it has no events')
  expect(namesInstead('other', many, 'steps')).toMatch(/: its steps are s0, .*, s9 and 3 more$/)
})
