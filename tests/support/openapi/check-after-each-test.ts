/**
 * Fails a test if a service in the test's own process sent a response that deviates from the service's OpenAPI
 * document. Releases at the end of each test file what the tests of the file have shared.
 */
import { releaseAll } from '@integration-host/shared/test-support/end-of-file'
import { afterAll, afterEach, expect } from 'vitest'
import { deviations } from './deviations.ts'

afterEach(() => {
  expect(deviations.splice(0)).toEqual([])
})

afterAll(releaseAll)
