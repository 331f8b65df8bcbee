import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type DemoApiFixture, startDemoApiFixture } from '../../test-support/demo-api-fixture.ts'

let demo: DemoApiFixture

beforeAll(async () => {
  demo = await startDemoApiFixture('http://127.0.0.1:9')
})
afterAll(() => demo[Symbol.asyncDispose]())

const CREATED = '2026-11-20T10:00:00.1234567+00:00'
const report = (created: string, order = 'O-66') =>
  demo.send(`/report?${new URLSearchParams({ order, created }).toString()}`)

describe('GET /order', () => {
  it('responds with 201, the order and the server time, ISO 8601 with offset', async () => {
    const before = Date.now()
    const { status, text, headers } = await demo.send('/order?order=O-66')
    const body = JSON.parse(text)
    expect(status).toBe(201)
    expect(headers['content-type']).toMatch(/^application\/json/)
    expect(body).toEqual({
      Order: 'O-66',
      CreatedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$/),
    })
    expect(Date.parse(body.CreatedAt)).toBeGreaterThanOrEqual(before)
    expect(Date.parse(body.CreatedAt)).toBeLessThanOrEqual(Date.now())
  })

  it.each(['=1+1', `O-'"<>&`, 'O-😀', 'O-../x', `O-${'x'.repeat(128)}`])(
    'keeps %j as it is',
    async (order) => {
      const { text } = await demo.send(`/order?${new URLSearchParams({ order }).toString()}`)
      expect(JSON.parse(text).Order).toBe(order)
    },
  )

  it.each([
    ['missing', '', 'order: is missing'],
    ['empty', '?order=', 'order: must not be empty'],
    ['given twice', '?order=1&order=2', 'order: must be given once'],
    ['beside an unknown parameter', '?order=1&x=1', 'unknown parameter'],
    [
      '10,000 characters long',
      `?order=${'x'.repeat(10_000)}`,
      'order: must have at most 1024 characters',
    ],
    ['with a line break', '?order=a%0Ab', 'order: must not contain control characters'],
    ['no UTF-8', '?order=%ff', 'the parameters are not well-formed UTF-8'],
  ])('rejects an order that is %s with 400 in text', async (_, query, text) => {
    expect(await demo.send(`/order${query}`)).toMatchObject({ status: 400, text })
  })
})

describe('GET /report', () => {
  it('responds with 200, the order, the time as it was sent and a fixed confirmation', async () => {
    const first = await report(CREATED)
    const second = await report('2026-11-20T10:00:00Z', 'O-67')
    expect(first.status).toBe(200)
    expect(JSON.parse(first.text)).toEqual({
      Order: 'O-66',
      CreatedAt: CREATED,
      Status: expect.stringMatching(/./),
    })
    expect(JSON.parse(second.text).Status).toBe(JSON.parse(first.text).Status)
  })

  it('accepts the time that /order returned', async () => {
    const order = JSON.parse((await demo.send('/order?order=O-1')).text)
    expect(await report(order.CreatedAt, order.Order)).toMatchObject({ status: 200 })
  })

  it.each([
    '2026-11-20T10:00:00+00:00',
    '2026-11-20T10:00:00-11:30',
    '2026-11-20T10:00:00.1Z',
    '2026-11-20T10:00:00,123456789+14:00',
    '2026-11-20T10:00Z',
    '2024-02-29T23:59:59Z',
    '2000-02-29T00:00:00Z',
    '0001-01-01T00:00:00Z',
    '9999-12-31T23:59:59.9999999+00:00',
  ])('accepts %s and echoes it', async (created) => {
    const { status, text } = await report(created)
    expect([status, JSON.parse(text).CreatedAt]).toEqual([200, created])
  })

  it.each([
    '',
    'yesterday',
    '0',
    '1e3',
    '2026-11-20',
    '2026-11-20T10:00:00',
    '2026-11-20 10:00:00+00:00',
    '2026-11-20T10:00:00 00:00',
    '2026-13-01T00:00:00Z',
    '2026-00-10T00:00:00Z',
    '2026-02-30T00:00:00Z',
    '2026-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2026-11-31T00:00:00Z',
    '0000-00-00T00:00:00Z',
    '0000-01-01T00:00:00Z',
    '2026-11-20T24:00:00Z',
    '2026-11-20T10:60:00Z',
    '2026-11-20T10:00:60Z',
    '2026-11-20T10:00:00+25:00',
    '2026-11-20T10:00:00+00:60',
    '2026-11-20T10:00:00+0000',
    '2026-11-20T10:00:00+00',
    '2026-11-20T10:00:00.+00:00',
    '2026-11-20T10:00:00.1234567890Z',
    '2026-11-20T10:00:00Z junk',
    ' 2026-11-20T10:00:00Z',
    '2026-11-20t10:00:00z',
    '+275760-09-13T00:00:00Z',
    '-000001-01-01T00:00:00Z',
    '２０２６-11-20T10:00:00Z',
  ])('rejects %j as time with 400 in text', async (created) => {
    const answer = await report(created)
    expect(answer.status).toBe(400)
    expect(answer.text).toMatch(/^created: must /)
  })

  it('rejects thousands of digits without excessive backtracking', async () => {
    const startedAt = performance.now()
    const answer = await report(`2026-11-20T10:00:00.${'1'.repeat(5_000)}`)
    expect(answer).toMatchObject({ status: 400 })
    expect(performance.now() - startedAt).toBeLessThan(1_000)
  })

  it('explains how to encode a + that arrived as a space', async () => {
    const answer = await demo.send('/report?order=1&created=2026-11-20T10:00:00+00:00')
    expect(answer).toMatchObject({ status: 400, text: expect.stringContaining('%2B') })
  })

  it.each([
    ['order is missing', `?created=${encodeURIComponent(CREATED)}`, 'order: is missing'],
    ['created is missing', '?order=1', 'created: is missing'],
    ['created is given twice', '?order=1&created=1&created=2', 'created: must be given once'],
  ])('rejects a call where %s', async (_, query, text) => {
    expect(await demo.send(`/report${query}`)).toMatchObject({ status: 400, text })
  })
})

describe('an Idempotency-Key', () => {
  const order = (key: string, value = 'O-1') =>
    demo.send(`/order?order=${value}`, { headers: { 'Idempotency-Key': key } })

  it('gets the first response again, marked, and counts as one effect', async () => {
    const key = 'OrderProcess/66/0/order'
    const first = await order(key)
    await serverTimeToPass(JSON.parse(first.text).CreatedAt)
    const second = await order(key)
    expect(second).toMatchObject({ status: 201, text: first.text })
    expect(first.headers).not.toHaveProperty('idempotent-replayed')
    expect(second.headers).toMatchObject({ 'idempotent-replayed': 'true' })
    const { text: metrics } = await demo.send('/metrics')
    expect(metrics).toMatch(/demo_api_step_calls_total\{[^}]*effect="repeated"[^}]*\} 1\b/)
  })

  it('of another step is independent', async () => {
    const first = await order('OrderProcess/67/0/order')
    expect(await order('OrderProcess/67/1/order')).not.toMatchObject({
      headers: { 'idempotent-replayed': 'true' },
    })
    expect(first.status).toBe(201)
  })

  it('applies to /report as well', async () => {
    const send = () =>
      demo.send(`/report?order=1&created=${encodeURIComponent(CREATED)}`, {
        headers: { 'Idempotency-Key': 'OrderProcess/66/0/report' },
      })
    const first = await send()
    expect(await send()).toMatchObject({
      status: 200,
      text: first.text,
      headers: { 'idempotent-replayed': 'true' },
    })
  })

  it('that was used for another request is rejected, and the first response stays stored', async () => {
    const first = await order('reused')
    expect(await order('reused', 'O-2')).toMatchObject({
      status: 400,
      text: 'Idempotency-Key: was used for another request',
    })
    expect((await order('reused')).text).toBe(first.text)
  })

  it('of a rejected call can be used again', async () => {
    expect((await order('free', '')).status).toBe(400)
    expect((await order('free')).headers).not.toHaveProperty('idempotent-replayed')
  })

  it('may be as long as the longest transaction id makes it', async () => {
    const id = encodeURIComponent('\u4e00'.repeat(128))
    expect(await order(`OrderProcess/${id}/2147483647/order`)).toMatchObject({ status: 201 })
  })

  it.each(['', 'a b', 'x'.repeat(2_049)])('that is malformed (%#) is rejected', async (key) => {
    expect(await order(key)).toMatchObject({ status: 400 })
  })
})

/** Resolves once a new order would get a later time. */
async function serverTimeToPass(time: string): Promise<void> {
  while (JSON.parse((await demo.send('/order?order=clock')).text).CreatedAt === time);
}
