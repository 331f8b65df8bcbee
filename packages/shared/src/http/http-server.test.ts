import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Hono } from 'hono'
import { expect, it, vi } from 'vitest'
import { honoListener, listen, rawJson, rawResponse } from './http-server.ts'

it('the HTTP server shuts down without a delay although a client has opened a connection in advance and never used it', async () => {
  const server = await listen((_request, response) => response.end(), {
    host: '127.0.0.1',
    port: 0,
    drainMs: 60_000,
  })
  const socket = connect(server.port, '127.0.0.1')
  await once(server.server, 'connection')
  const closed = once(socket, 'close')
  await server[Symbol.asyncDispose]()
  await closed
  expect(socket.destroyed).toBe(true)
})

it('the HTTP server closes every connection after the drain time, even a connection that node:http does not serve', async () => {
  const server = await listen((_request, response) => response.end(), {
    host: '127.0.0.1',
    port: 0,
    drainMs: 50,
  })
  const [admit] = server.server.listeners('connection') as (() => void)[]
  if (admit !== undefined) server.server.off('connection', admit)
  const accepted = once(server.server, 'connection')
  const socket = connect(server.port, '127.0.0.1')
  socket.write('bytes')
  const [theirs] = (await accepted) as [Socket]
  await once(theirs, 'data')
  const closed = once(socket, 'close')
  await server[Symbol.asyncDispose]()
  await closed
  expect(theirs.destroyed).toBe(true)
})

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

it.each([
  ['400 response to a malformed request', 'malformed\r\n\r\n', 400],
  [
    '417 response to an unknown Expect header',
    'GET / HTTP/1.1\r\nHost: x\r\nExpect: all\r\n\r\n',
    417,
  ],
])(
  'the HTTP server closes a connection 30 s after a %s if the client does not close it',
  async (_, text, status) => {
    vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] })
    try {
      await using server = await listen((_request, response) => response.end(), {
        host: '127.0.0.1',
        port: 0,
      })
      // With `allowHalfOpen`, the client keeps its side open when the server closes the connection.
      const client = connect({ port: server.port, host: '127.0.0.1', allowHalfOpen: true })
      const accepted = once(server.server, 'connection')
      client.on('error', () => {})
      client.write(text)
      const [theirs] = (await accepted) as [Socket]
      const [response] = (await once(client, 'data')) as [Buffer]
      expect(response.toString()).toContain(`HTTP/1.1 ${status} `)
      vi.advanceTimersByTime(29_000)
      expect(theirs.destroyed).toBe(false)
      vi.advanceTimersByTime(2_000)
      expect(theirs.destroyed).toBe(true)
      client.destroy()
    } finally {
      vi.useRealTimers()
    }
  },
)
