import { Hono } from 'hono'
import { expect, it } from 'vitest'
import { preferredWaitSeconds } from './prefer.ts'

const app = new Hono().get('/', (c) => c.json(preferredWaitSeconds(c)))
const waitOf = async (prefer?: string): Promise<unknown> =>
  (await app.request('/', { headers: prefer === undefined ? {} : { Prefer: prefer } })).json()

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
