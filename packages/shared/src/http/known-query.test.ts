import { Hono } from 'hono'
import { describe, expect, it } from 'vitest'
import { onlyKnownQuery } from './known-query.ts'
import { problemResponse } from './problem.ts'

const app = new Hono()
  .get('/list', onlyKnownQuery('cursor', 'limit'), (c) => c.json(c.req.query()))
  .get('/read', onlyKnownQuery(), (c) => c.json({}))
app.onError((error, c) => problemResponse(c, error))

const get = async (path: string) => {
  const response = await app.request(path)
  return { status: response.status, body: (await response.json()) as Record<string, unknown> }
}

describe('the middleware onlyKnownQuery', () => {
  it.each(['/list', '/list?', '/list?limit=1', '/list?limit=1&cursor=a&limit=2', '/read'])(
    'onlyKnownQuery accepts a request for %s, whose query parameters are all known',
    async (path) => expect((await get(path)).status).toBe(200),
  )

  it('the error for an unknown query parameter contains its name and the allowed names, but not its value', async () => {
    expect(await get('/list?limit=1&limt=secret')).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_request',
        detail: 'limt: is not a query parameter of this path (allowed: cursor, limit)',
        errors: ['limt: is not a query parameter of this path'],
      },
    })
  })

  it('onlyKnownQuery without allowed names rejects every query parameter', async () => {
    expect((await get('/read?a=1&b=2')).body['detail']).toBe(
      'a: is not a query parameter of this path; b: is not a query parameter of this path (none is allowed here)',
    )
  })

  it.each(['Limit', '%6cimi%74%00', '__proto__', 'constructor', 'x'.repeat(10_000)])(
    'onlyKnownQuery rejects the query parameter %s and shows at most 64 characters of its name',
    async (name) => {
      const { status, body } = await get(`/list?${name}=1`)
      expect([status, String(body['detail']).length < 200]).toEqual([400, true])
    },
  )
})
