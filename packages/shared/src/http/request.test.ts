import { Hono } from 'hono'
import { describe, expect, it } from 'vitest'
import { onlyKnownQuery, preferredWaitSeconds } from './request.ts'
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

const waits = new Hono().get('/', (c) => c.json(preferredWaitSeconds(c)))
const waitOf = async (prefer?: string): Promise<unknown> =>
  (await waits.request('/', { headers: prefer === undefined ? {} : { Prefer: prefer } })).json()

it.each([
  ['wait=30', 30],
  ['wait="30"', 30],
  ['WAIT = 30', 30],
  ['respond-async, wait=10', 10],
  ['handling=lenient,wait=10,return=minimal', 10],
  ['wait=10; reason=test, respond-async', 10],
  ['wait=10, wait=20', 10],
  ['reason="no, wait=5", wait=10', 10],
  ['wait=0', 0],
])('`Prefer: %s` is a wait of %i seconds (RFC 7240)', async (prefer, seconds) => {
  expect(await waitOf(prefer)).toBe(seconds)
})

it.each([
  undefined,
  '',
  'respond-async',
  'wait',
  'wait=',
  'wait=soon',
  'wait=-1',
  'wait=1.5',
  'wait=30s',
  'wait="30',
  'await=30',
  'foo; wait=30',
  'foo="a, wait=30"',
  'wait=soon, wait=30',
  'wait=9999999999',
])('`Prefer: %s`, which has no valid `wait`, is ignored', async (prefer) => {
  expect(await waitOf(prefer)).toBe(null)
})
