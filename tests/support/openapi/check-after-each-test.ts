/** Fails a test if a service in its process sent a response that deviates from its OpenAPI document. */
import { afterEach, expect } from 'vitest'
import { deviations } from './deviations.ts'

afterEach(() => {
  expect(deviations.splice(0)).toEqual([])
})
