import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Secret } from '@integration-host/shared/secrets/secret'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { createServiceClient } from './service-client.ts'
import { followTransitions } from './transition-stream.ts'

const event = (Version: number) => ({
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 0,
  Status: 'Running',
  StepName: 'order',
  Version,
  At: '2026-11-22T02:41:00.000Z',
})

describe('the stream of transitions from the coordinator', () => {
  let opened: AsyncDisposableStack
  /** The open streams, and the Last-Event-ID of every stream so far. */
  let streams: ServerResponse[]
  let lastIds: (string | undefined)[]
  let urls: (string | undefined)[]
  let versions: number[]
  let gaps: number

  beforeEach(async () => {
    opened = new AsyncDisposableStack()
    streams = []
    lastIds = []
    urls = []
    versions = []
    gaps = 0
    const server = createServer((request, response) => {
      urls.push(request.url)
      lastIds.push(request.headers['last-event-id'] as string | undefined)
      streams.push(response.writeHead(200, { 'Content-Type': 'text/event-stream' }))
      response.write(': connected\n\n')
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    opened.defer(async () => {
      server.close()
      server.closeAllConnections()
      await once(server, 'close')
    })
    const closing = new AbortController()
    const client = createServiceClient({
      name: 'coordinator',
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      key: new Secret('a-key-of-the-tests-of-the-transition-stream'),
      canActFor: true,
    })
    const following = followTransitions(
      client,
      { onEvent: ({ Version }) => versions.push(Version), onGap: () => (gaps += 1) },
      closing.signal,
    )
    opened.defer(async () => {
      closing.abort()
      await following
    })
    await eventually(() => expect(streams).toHaveLength(1))
  })
  afterEach(() => opened.disposeAsync())

  const send = (version: number) =>
    streams
      .at(-1)
      ?.write(`event: transaction\nid: e-${version}\ndata: ${JSON.stringify(event(version))}\n\n`)
  async function cut(): Promise<void> {
    const count = streams.length
    streams.at(-1)?.destroy()
    await eventually(() => expect(streams).toHaveLength(count + 1))
  }

  it('a transition stream that was cut continues after its last event, without a gap', async () => {
    send(1)
    await eventually(() => expect(versions).toEqual([1]))
    await cut()
    expect(lastIds).toEqual([undefined, 'e-1'])
    expect(urls).toEqual(['/events?coalesce=true', '/events?coalesce=true'])
    send(2)
    await eventually(() => expect(versions).toEqual([1, 2]))
    expect(gaps).toBe(0)
  })

  it('a transition stream reports a gap if the coordinator does not know the last event', async () => {
    send(1)
    await eventually(() => expect(versions).toEqual([1]))
    await cut()
    streams.at(-1)?.write('event: reset\ndata: {}\n\n')
    await eventually(() => expect(gaps).toBe(1))
  })

  it('a transition stream reports a gap if the connection was cut before the first event', async () => {
    expect(gaps).toBe(0)
    await cut()
    await eventually(() => expect(gaps).toBe(1))
  })
})
