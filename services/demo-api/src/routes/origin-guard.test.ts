import { connect } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type FakeCoordinator,
  type DemoApiFixture,
  startFakeCoordinator,
  startDemoApiFixture,
} from '../../test-support/demo-api-fixture.ts'

let coordinator: FakeCoordinator
let demo: DemoApiFixture

beforeAll(async () => {
  coordinator = await startFakeCoordinator()
  demo = await startDemoApiFixture(coordinator.url, { ALLOWED_HOSTS: 'demo-api, Other.Example' })
})
beforeEach(() => void (coordinator.calls.length = 0))
afterAll(async () => {
  await demo[Symbol.asyncDispose]()
  await coordinator[Symbol.asyncDispose]()
})

const QUEUE = '/queue?number=66'

describe('the host name of a request to the demo API', () => {
  it.each([
    '127.0.0.1',
    '127.0.0.1:7216',
    'localhost',
    'LOCALHOST:7216',
    '[::1]',
    '[::1]:7216',
    'demo-api:7216',
    'other.example',
  ])('the demo API accepts a request with the Host %s', async (host) => {
    expect(await demo.send(QUEUE, { headers: { Host: host } })).toMatchObject({ status: 200 })
  })

  it.each([
    'evil.example',
    'localhost.evil.example',
    'evillocalhost:7216',
    'localhost.',
    'localhost:7216.evil.example',
    'localhost@evil.example',
    '127.1',
    '2130706433',
    '0.0.0.0',
    '[::ffff:127.0.0.1]',
    'demo-api.evil.example',
    'localhost:',
    'localhost:port',
  ])('the demo API rejects a request with the Host %s and queues nothing', async (host) => {
    const { status } = await demo.send(QUEUE, { headers: { Host: host } })
    expect([400, 421]).toContain(status)
    expect(coordinator.calls).toEqual([])
  })

  it.each(['/health/live', '/metrics', '/openapi.json', '/order?order=1', '/nowhere'])(
    'the demo API rejects a request for %s with a foreign Host',
    async (path) => {
      const answer = await demo.send(path, { headers: { Host: 'evil.example' } })
      expect(answer).toMatchObject({ status: 421 })
    },
  )

  it('the demo API checks the host of a request target in absolute form instead of the Host header', async () => {
    const answer = await demo.send(`http://evil.example${QUEUE}`, {
      headers: { Host: 'localhost' },
    })
    expect(answer.status).toBe(421)
    expect(coordinator.calls).toEqual([])
  })

  it.each([
    ['no Host header', []],
    ['two Host headers', ['Host: localhost', 'Host: evil.example']],
  ])('the demo API rejects a request with %s', async (_, headers) => {
    expect(await raw([`GET ${QUEUE} HTTP/1.1`, ...headers])).toMatch(/^HTTP\/1\.1 4\d\d /)
    expect(coordinator.calls).toEqual([])
  })
})

describe('a request from a browser to the demo API', () => {
  it.each<[string, Record<string, string>]>([
    ['a request from another site', { 'Sec-Fetch-Site': 'cross-site' }],
    ['a request from a page on another port', { 'Sec-Fetch-Site': 'same-site' }],
    ['a request with an empty Sec-Fetch-Site', { 'Sec-Fetch-Site': '' }],
    [
      'a request of its own site with a foreign Origin',
      { 'Sec-Fetch-Site': 'same-origin', Origin: 'http://localhost:3000' },
    ],
    ['a prefetch', { 'Sec-Purpose': 'prefetch' }],
    ['a prerendering request', { 'Sec-Purpose': 'prefetch;prerender' }],
    ['a prefetch marked by the older header Purpose', { Purpose: 'prefetch' }],
    ['a prefetch marked by the older header X-Moz', { 'X-Moz': 'prefetch' }],
    ['a request with a foreign Origin', { Origin: 'https://evil.example' }],
    [
      'a request whose Origin has another port',
      { Host: 'localhost:7216', Origin: 'http://localhost:3000' },
    ],
    ['a request with the opaque Origin null', { Origin: 'null' }],
  ])('the demo API rejects %s with 403 and queues nothing', async (_, headers) => {
    for (const method of ['GET', 'POST']) {
      const answer = await demo.send(QUEUE, { method, headers })
      expect(answer.status).toBe(403)
      expect(answer.headers['content-type']).toMatch(/^text\/plain/)
    }
    expect(coordinator.calls).toEqual([])
  })

  it.each<[string, Record<string, string>]>([
    ['a request for an address that the user typed', { 'Sec-Fetch-Site': 'none' }],
    [
      'a request from a page of the same origin',
      { 'Sec-Fetch-Site': 'same-origin', Host: 'localhost:7216', Origin: 'http://localhost:7216' },
    ],
  ])('the demo API accepts %s', async (_, headers) => {
    expect(await demo.send(QUEUE, { headers })).toMatchObject({ status: 200 })
  })

  it('the demo API responds 403, without Access-Control headers, to a CORS preflight from another site', async () => {
    const answer = await demo.send(QUEUE, {
      method: 'OPTIONS',
      headers: { Origin: 'https://evil.example', 'Access-Control-Request-Method': 'POST' },
    })
    expect(answer.status).toBe(403)
    expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual(
      [],
    )
  })
})

describe('the method of a request to the demo API', () => {
  it.each<[string, string, string]>([
    ['/queue', 'HEAD', 'GET, POST'],
    ['/queue', 'PUT', 'GET, POST'],
    ['/queue', 'DELETE', 'GET, POST'],
    ['/queue', 'PATCH', 'GET, POST'],
    ['/queue', 'OPTIONS', 'GET, POST'],
    ['/queue', 'PROPFIND', 'GET, POST'],
    ['/replay', 'HEAD', 'GET, POST'],
    ['/replay', 'DELETE', 'GET, POST'],
    ['/order', 'HEAD', 'GET'],
    ['/order', 'POST', 'GET'],
    ['/report', 'HEAD', 'GET'],
    ['/report', 'PUT', 'GET'],
  ])(
    'for the path %s, the demo API rejects the method %s with 405 and Allow: %s, and queues nothing',
    async (path, method, allow) => {
      const answer = await demo.send(`${path}?number=66&order=1`, { method })
      expect(answer).toMatchObject({ status: 405, headers: { allow } })
      expect(coordinator.calls).toEqual([])
    },
  )
})

describe('the path of a request to the demo API', () => {
  it.each(['/Queue', '/queue/', '//queue', '/queue;x=1', '/queue%2f'])(
    'the demo API responds to %s with 404 and queues nothing',
    async (path) => {
      expect(await demo.send(`${path}?number=66`)).toMatchObject({
        status: 404,
        text: 'no such path',
      })
      expect(coordinator.calls).toEqual([])
    },
  )
})

describe('the limits of the demo API for the size of a request', () => {
  it('the demo API rejects a body above the limit with 413 in plain text', async () => {
    const answer = await demo.send('/queue', {
      method: 'POST',
      headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
      body: `number=${'x'.repeat(70_000)}`,
    })
    expect(answer.status).toBe(413)
    expect(answer.headers['content-type']).toMatch(/^text\/plain/)
    expect(coordinator.calls).toEqual([])
  })

  it('the demo API rejects a request target above the limit with 431', async () => {
    expect(await demo.send(`/queue?number=${'x'.repeat(17_000)}`)).toMatchObject({ status: 431 })
  })
})

/** Sends the lines unchanged over a TCP connection. Resolves with the status line of the response. */
function raw(lines: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(demo.url).port), '127.0.0.1')
    let text = ''
    socket.on('data', (data) => (text += data.toString()))
    socket.on('close', () => resolve(text.split('\r\n')[0] ?? ''))
    socket.on('error', reject)
    socket.write(`${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n`)
  })
}
