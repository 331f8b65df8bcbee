import { expect, it } from 'vitest'
import { headerValue } from './header-list.ts'

it('headerValue finds a header field by its name regardless of upper and lower case', () => {
  expect(headerValue(['A', '1', 'Retry-AFTER', '5'], 'retry-after')).toBe('5')
  expect(headerValue(['A', '1'], 'retry-after')).toBeNull()
})
