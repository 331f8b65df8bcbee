/** A test fails when a service in its process gave an answer that is not as documented. */
import { afterEach, expect } from 'vitest'
import { deviations } from './deviations.ts'

afterEach(() => {
  expect(deviations.splice(0)).toEqual([])
})
