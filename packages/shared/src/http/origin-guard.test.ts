import { Hono } from 'hono'
import { expect, it } from 'vitest'
import { IntegrationError } from '../errors.ts'
import { allowOwnHosts, rejectCrossSite } from './origin-guard.ts'
import { problemResponse } from './problem.ts'

const app = new Hono()
  .use(allowOwnHosts(['demo-api'], 'ALLOWED_HOSTS'), rejectCrossSite)
  .get('/', (c) => c.text('served'))
  .onError((error, c) => {
    if (!(error instanceof IntegrationError)) throw error
    return problemResponse(c, error)
  })

const statusOf = async (headers: Record<string, string>, origin = 'http://localhost:7216') =>
  (await app.request(`${origin}/`, { headers: { Host: 'localhost:7216', ...headers } })).status

it.each([{}, { 'Sec-Fetch-Site': 'same-origin' }, { 'Sec-Fetch-Site': 'none' }])(
  'the service accepts a request whose headers %j do not indicate a page of another origin',
  async (headers) => expect(await statusOf(headers)).toBe(200),
)

it.each([
  { 'Sec-Fetch-Site': 'cross-site' },
  // The value that a browser sends if a page on another port of localhost makes the request.
  { 'Sec-Fetch-Site': 'same-site' },
  { 'Sec-Fetch-Site': '' },
  { 'Sec-Fetch-Site': 'same-origin', Origin: 'http://localhost:3000' },
  { 'Sec-Purpose': 'prefetch' },
])(
  'the service rejects a request with the headers %j, which a page of another origin may have caused',
  async (headers) => expect(await statusOf(headers)).toBe(403),
)

it.each(['demo-api', 'demo-api:7216', '127.0.0.1:7216', '[::1]:7216'])(
  'the service accepts a request whose Host header is %s',
  async (host) => expect(await statusOf({ Host: host })).toBe(200),
)

it.each(['evil.example', '127.0.0.1.evil.example', 'demo-api.evil.example'])(
  'the service responds 421 to a request whose Host header is %s',
  async (host) => expect(await statusOf({ Host: host })).toBe(421),
)

it('the service rejects a request whose absolute-form target has a foreign host, whatever the Host header is', async () => {
  expect(await statusOf({}, 'http://evil.example')).toBe(421)
})
