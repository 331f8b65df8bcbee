/**
 * Fails a test if a service in the test's own process sent a response that deviates from the service's OpenAPI
 * document.
 */
import { afterEach, expect } from 'vitest'
import { deviations } from './deviations.ts'

afterEach(() => {
  expect(deviations.splice(0)).toEqual([])
})
