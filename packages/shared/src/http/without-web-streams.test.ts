import { Hono } from 'hono'
import { expect, it } from 'vitest'
import { honoListener, listen } from './http-server.ts'
import { rawJson, rawResponse } from './without-web-streams.ts'

it('the HTTP server sends the headers of all middleware before the body of a raw response', async () => {
  const app = new Hono()
  app.use(async (c, next) => {
    await next()
    c.res.headers.set('X-Later', 'yes')
  })
  app.get('/', (c) =>
    rawResponse(c, { 'Content-Type': 'text/plain' }, (outgoing) => () => void outgoing.end('body')),
  )
  await using server = await listen(honoListener(app), { host: '127.0.0.1', port: 0 })
  const response = await fetch(server.url)
  expect([response.status, response.headers.get('X-Later'), await response.text()]).toEqual([
    200,
    'yes',
    'body',
  ])
  const head = await fetch(server.url, { method: 'HEAD' })
  expect([head.status, head.headers.get('X-Later'), await head.text()]).toEqual([200, 'yes', ''])
})

it('the HTTP server sends the same response for rawJson as for json', async () => {
  const app = new Hono()
  app.use(async (c, next) => {
    await next()
    c.res.headers.set('X-Later', 'yes')
  })
  const value = { name: 'Zoë', items: [1, null] }
  app.get('/json', (c) => c.json(value, 202))
  app.get('/raw', (c) => rawJson(c, value, 202))
  await using server = await listen(honoListener(app), { host: '127.0.0.1', port: 0 })
  const sent = async (path: string, method: string) => {
    const response = await fetch(server.url + path, { method })
    const { date: _, ...headers } = Object.fromEntries(response.headers)
    return { status: response.status, headers, text: await response.text() }
  }
  const raw = await sent('/raw', 'GET')
  expect(raw).toEqual(await sent('/json', 'GET'))
  expect(raw).toMatchObject({ status: 202, text: JSON.stringify(value) })
  expect(await sent('/raw', 'HEAD')).toMatchObject({ status: 202, text: '' })
  // Without a server, the body is part of the Response.
  expect(await (await app.request('/raw')).json()).toEqual(value)
})

it('the HTTP server sends the error response of the app if a middleware throws after rawJson', async () => {
  const app = new Hono()
  app.onError((_, c) => c.text('failed', 500))
  app.get('/', async (_, next) => {
    await next()
    throw new Error('too late')
  })
  app.get('/', (c) => rawJson(c, { secret: true }))
  await using server = await listen(honoListener(app), { host: '127.0.0.1', port: 0 })
  const response = await fetch(server.url)
  expect([response.status, await response.text()]).toEqual([500, 'failed'])
})

it("the HTTP server sends the app's error response if the callback that opens a raw response throws", async () => {
  const app = new Hono()
  app.onError((_, c) => c.text('full', 503))
  app.get('/', (c) =>
    rawResponse(c, {}, () => {
      throw new Error('no place left')
    }),
  )
  await using server = await listen(honoListener(app), { host: '127.0.0.1', port: 0 })
  const response = await fetch(server.url)
  expect([response.status, await response.text()]).toEqual([503, 'full'])
})
