import { asObject } from '@integration-host/shared/json'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeResponse,
  type FakeService,
  problem,
  SERVICE_KEY,
  startFakeService,
} from '../../cli/test-support/fake-service.ts'
import { createService, type Schema } from './service.ts'

const key = { reveal: () => SERVICE_KEY }
const schema: Schema<{ readonly A: number }> = {
  safeParse(value) {
    const A = asObject(value)?.['A']
    return typeof A === 'number' ? { success: true, data: { A } } : { success: false }
  },
}

describe('the requests to a service', () => {
  let fake: FakeService
  let response: FakeResponse | Promise<FakeResponse>
  beforeEach(async () => {
    fake = await startFakeService({ 'GET /x': () => response })
  })
  afterEach(() => fake[Symbol.asyncDispose]())

  const request = (options: { readonly timeoutMs?: number; readonly maxBytes?: number } = {}) =>
    createService({ url: fake.url, key, ...options }).request('/x', schema)

  it('a request presents the key, and returns the body that the schema accepts', async () => {
    response = { body: { A: 1, B: 2 } }
    expect(await request()).toEqual({ A: 1 })
    expect(fake.requests[0]?.headers.authorization).toBe(`Bearer ${SERVICE_KEY}`)
  })

  it('a request reports the problem of the service, with Retry-After', async () => {
    response = { ...problem(503, 'store_unavailable'), headers: { 'Retry-After': '7' } }
    await expect(request()).rejects.toMatchObject({
      problem: { code: 'store_unavailable', status: 503 },
      retryAfterSeconds: 7,
    })
  })

  it.each<[string, FakeResponse, number]>([
    ['a body of another form', { body: { A: 'one' } }, 200],
    ['a body that is not JSON', { body: '<html>' }, 200],
    ['an error page', { status: 502, body: '<html>' }, 502],
    ['a redirect', { status: 302, headers: { Location: 'http://127.0.0.1:9/' } }, 302],
  ])('a request reports %s as an unexpected response', async (_, given, status) => {
    response = given
    await expect(request()).rejects.toMatchObject({
      problem: { code: 'response_unexpected', status },
    })
  })

  it('a request fails if the response is larger than maxBytes, breaks off, or is not complete in time', async () => {
    const failure = { problem: { code: 'connection_failed' } }
    response = { body: { A: 1, B: 'x'.repeat(1_000) } }
    await expect(request({ maxBytes: 999 })).rejects.toMatchObject(failure)
    response = { body: '{"A":', isCut: true }
    await expect(request()).rejects.toMatchObject(failure)
    response = new Promise<FakeResponse>(() => {})
    await expect(request({ timeoutMs: 20 })).rejects.toMatchObject({
      ...failure,
      cause: { name: 'TimeoutError' },
    })
  })
})
