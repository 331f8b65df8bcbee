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

describe('the demo API: GET /order', () => {
  it('GET /order returns 201 with the order and the server time in ISO 8601 with an offset', async () => {
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
    'GET /order returns the order %j unchanged',
    async (order) => {
      const { text } = await demo.send(`/order?${new URLSearchParams({ order }).toString()}`)
      expect(JSON.parse(text).Order).toBe(order)
    },
  )

  it.each([
    ['a missing order', '', 'order: is missing'],
    ['an empty order', '?order=', 'order: must not be empty'],
    ['two orders', '?order=1&order=2', 'order: must be given once'],
    ['an order and an unknown parameter', '?order=1&x=1', 'unknown parameter'],
    [
      'an order of 10,000 characters',
      `?order=${'x'.repeat(10_000)}`,
      'order: must have at most 1024 characters',
    ],
    ['an order with a line break', '?order=a%0Ab', 'order: must not contain control characters'],
    ['an order that is not UTF-8', '?order=%ff', 'the parameters are not well-formed UTF-8'],
  ])('GET /order rejects %s with 400 in plain text', async (_, query, text) => {
    expect(await demo.send(`/order${query}`)).toMatchObject({ status: 400, text })
  })
})

describe('the demo API: GET /report', () => {
  it('GET /report returns 200 with the order, the unchanged time of the request and a fixed status text', async () => {
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

  it('GET /report accepts the CreatedAt that /order returned', async () => {
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
  ])('GET /report accepts %s as the time of a report and returns it unchanged', async (created) => {
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
  ])('GET /report rejects %j as the time of a report with 400 in plain text', async (created) => {
    const answer = await report(created)
    expect(answer.status).toBe(400)
    expect(answer.text).toMatch(/^created: must /)
  })

  it('GET /report rejects a time with thousands of digits without excessive backtracking of its regular expression', async () => {
    const startedAt = performance.now()
    const answer = await report(`2026-11-20T10:00:00.${'1'.repeat(5_000)}`)
    expect(answer).toMatchObject({ status: 400 })
    // A regular expression with exponential backtracking would run far longer than 30 s.
    expect(performance.now() - startedAt).toBeLessThan(30_000)
  })

  it('GET /report explains how to percent-encode the + of a time offset if the time contains a space instead of the +', async () => {
    const answer = await demo.send('/report?order=1&created=2026-11-20T10:00:00+00:00')
    expect(answer).toMatchObject({ status: 400, text: expect.stringContaining('%2B') })
  })

  it.each([
    ['order is missing', `?created=${encodeURIComponent(CREATED)}`, 'order: is missing'],
    ['created is missing', '?order=1', 'created: is missing'],
    ['created is given twice', '?order=1&created=1&created=2', 'created: must be given once'],
  ])('GET /report rejects a report with 400 if %s', async (_, query, text) => {
    expect(await demo.send(`/report${query}`)).toMatchObject({ status: 400, text })
  })
})

describe('a request with an Idempotency-Key', () => {
  const order = (key: string, value = 'O-1') =>
    demo.send(`/order?order=${value}`, { headers: { 'Idempotency-Key': key } })

  it('the demo API returns the first response of /order, with the header Idempotent-Replayed, if the Idempotency-Key is repeated', async () => {
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

  it('the demo API creates a new response if the Idempotency-Key names another ReplayID', async () => {
    const first = await order('OrderProcess/67/0/order')
    expect(await order('OrderProcess/67/1/order')).not.toMatchObject({
      headers: { 'idempotent-replayed': 'true' },
    })
    expect(first.status).toBe(201)
  })

  it('the demo API returns the first response of /report if the Idempotency-Key is repeated', async () => {
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

  it('the demo API rejects an Idempotency-Key that was used for another request, and keeps the first response', async () => {
    const first = await order('reused')
    expect(await order('reused', 'O-2')).toMatchObject({
      status: 400,
      text: 'Idempotency-Key: was used for another request',
    })
    expect((await order('reused')).text).toBe(first.text)
  })

  it('the demo API accepts an Idempotency-Key again if the first call with this key was rejected', async () => {
    expect((await order('free', '')).status).toBe(400)
    expect((await order('free')).headers).not.toHaveProperty('idempotent-replayed')
  })

  it('the demo API accepts an Idempotency-Key that contains a percent-encoded transaction id of maximum length', async () => {
    const id = encodeURIComponent('\u4e00'.repeat(128))
    expect(await order(`OrderProcess/${id}/2147483647/order`)).toMatchObject({ status: 201 })
  })

  it.each(['', 'a b', 'x'.repeat(2_049)])(
    'the demo API rejects the malformed Idempotency-Key %j',
    async (key) => {
      expect(await order(key)).toMatchObject({ status: 400 })
    },
  )
})

/** Resolves when the server's clock is later than `time`, so that the next order gets a different `CreatedAt`. */
async function serverTimeToPass(time: string): Promise<void> {
  while (JSON.parse((await demo.send('/order?order=clock')).text).CreatedAt === time);
}
