import { expect, it } from 'vitest'
import { headerValue } from './header-list.ts'

it('finds a header field by its name regardless of case', () => {
  expect(headerValue(['A', '1', 'Retry-AFTER', '5'], 'retry-after')).toBe('5')
  expect(headerValue(['A', '1'], 'retry-after')).toBeNull()
})
