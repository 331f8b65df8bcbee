import { until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, expect, it } from 'vitest'
import {
  bearer,
  type Fixture,
  startEmbedded,
  type TestKey,
  writeKeys,
} from '../../test-support/fixture.ts'
import { WATCHERS } from './event-stream-routes.ts'

/**
 * The ways in which a key changes while a client reads events with it. `status` is the status of the response when the
 * client makes its next request.
 */
const changes: readonly (readonly [id: string, change: object | null, status: number])[] = [
  ['unchanged', {}, 200],
  ['revoked', null, 401],
  ['expired', { expires: '2020-01-01T00:00:00Z' }, 401],
  ['without-scope', { scopes: ['audit:read'] }, 403],
  ['bound-to-a-company', { realms: ['42'] }, 403],
  ['bound-to-a-process', { processes: ['Other'] }, 403],
]
const entryOf = (id: string): TestKey => ({ id, scopes: ['transactions:read'] })

let host: Fixture
beforeAll(async () => {
  host = await startEmbedded({ keys: changes.map(([id]) => entryOf(id)) })
})
afterAll(() => host[Symbol.asyncDispose]())

const watch = (id: string, signal: AbortSignal | null = null) =>
  host.call('/events', { signal, headers: bearer(id) })

it('a key that has taken all its places for event streams gets 503, while another key still gets a place', async () => {
  const client = new AbortController()
  const held = await Promise.all(
    Array.from({ length: WATCHERS.perKey }, () => watch('unchanged', client.signal)),
  )
  expect(new Set(held.map(({ status }) => status))).toEqual(new Set([200]))
  const rejected = await watch('unchanged')
  expect([rejected.status, rejected.headers.get('Retry-After')]).toEqual([503, '5'])
  expect(await rejected.json()).toMatchObject({ code: 'too_many_watchers' })
  const other = await watch('revoked')
  expect(other.status).toBe(200)
  await other.body?.cancel()
  client.abort()
  await until(async () => {
    const { status, body } = await watch('unchanged')
    await body?.cancel()
    return status === 200
  })
})

it('an event stream ends when its key may no longer read it, and the client cannot resume it', async () => {
  const streams = await Promise.all(
    changes.map(async ([id, , status]) => ({ id, status, response: await watch(id) })),
  )
  const changed = changes.flatMap(([id, change]) =>
    change === null ? [] : [{ ...entryOf(id), ...change }],
  )
  await writeKeys(host.backends, changed)
  for (const { id, status, response } of streams.filter((one) => one.status !== 200)) {
    expect(await response.text()).toBe(': connected\n\n')
    expect([id, (await watch(id)).status]).toEqual([id, status])
  }
  const [unchanged] = streams
  const reader = unchanged?.response.body?.getReader()
  await reader?.read() // reads the comment at the start of the stream
  await host.queue('after-the-change')
  expect(String(Buffer.from((await reader?.read())?.value ?? []))).toContain('after-the-change')
  await reader?.cancel()
})
