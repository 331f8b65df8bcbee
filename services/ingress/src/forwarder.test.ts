import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import { until } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Endpoint, startForwarder } from './forwarder.ts'

interface Replica extends Endpoint, AsyncDisposable {
  readonly sockets: readonly Socket[]
  readonly taken: () => Promise<Socket>
}

/** A server that lets the test speak for it. */
async function startReplica(serve: (socket: Socket) => void = () => {}): Promise<Replica> {
  const sockets: Socket[] = []
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket)
    socket.on('error', () => {})
    serve(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    sockets,
    taken: async () => ((await once(server, 'connection')) as [Socket])[0],
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** Whether it broke. */
const closeOf = (socket: Socket): Promise<boolean> =>
  new Promise((resolve) => void socket.resume().once('close', resolve))

/** Once a figure has stopped changing. */
async function settled(figure: () => number | undefined): Promise<void> {
  let before = Number.NaN
  await until(() => before === (before = figure() ?? 0), { everyMs: 100 })
}

/** Says its name and ends. */
const naming =
  (name: string) =>
  (socket: Socket): void =>
    void socket.end(name)

async function start(replicas: () => readonly Endpoint[], drainMs = 1) {
  const health = createHealth(createLogger('ingress', 'silent'))
  const forwarder = await startForwarder({
    listen: { host: '127.0.0.1', port: 0 },
    replicas: async () => replicas(),
    dependency: health.dependency('replicas'),
    drainMs,
  })
  const { hostname: host, port } = new URL(forwarder.url)
  const clients: Socket[] = []
  return {
    leave: () => forwarder[Symbol.asyncDispose](),
    state: () => health.report().dependencies['replicas']?.status,
    dial(): Socket {
      const socket = connect({ host, port: Number(port), allowHalfOpen: true })
      socket.on('error', () => {})
      clients.push(socket)
      return socket
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.destroy()
      await forwarder[Symbol.asyncDispose]()
    },
  }
}

describe('a forwarded connection', () => {
  it('carries bytes both ways as they are, and an end of one direction as that', async () => {
    await using replica = await startReplica((socket) => {
      // Answers only once the question is over.
      void buffer(socket).then((question) => socket.end(Buffer.concat([question, question])))
    })
    await using ingress = await start(() => [replica])
    const question = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
    const client = ingress.dial()
    client.end(question)
    expect(await buffer(client)).toEqual(Buffer.concat([question, question]))
  })

  it('goes no faster than a slow client reads, and loses nothing by that', async () => {
    const size = 64 * 1024 * 1024
    await using replica = await startReplica((socket) => void socket.end(Buffer.alloc(size)))
    await using ingress = await start(() => [replica])
    const client = ingress.dial()
    await once(client, 'readable') // the first bytes are there, and nobody takes them
    const [upstream] = replica.sockets
    await settled(() => upstream?.writableLength)
    expect(upstream?.writableLength).toBeGreaterThan(0)
    expect((await buffer(client)).length).toBe(size)
  })

  it('that a replica breaks off is broken off for the client, not ended', async () => {
    await using replica = await startReplica((socket) => {
      socket.write('half', () => socket.resetAndDestroy())
    })
    await using ingress = await start(() => [replica])
    const client = ingress.dial()
    expect(await closeOf(client)).toBe(true)
  })

  it('that a client breaks off is broken off for the replica', async () => {
    await using replica = await startReplica()
    await using ingress = await start(() => [replica])
    const taken = replica.taken()
    const client = ingress.dial()
    const upstream = await taken
    const closed = closeOf(upstream)
    client.resetAndDestroy()
    expect(await closed).toBe(true)
  })
})

describe('the replicas', () => {
  it('share short connections by turns', async () => {
    await using one = await startReplica(naming('one'))
    await using two = await startReplica(naming('two'))
    await using ingress = await start(() => [one, two])
    const answers: string[] = []
    for (let call = 0; call < 4; call++) {
      const client = ingress.dial()
      answers.push(await text(client))
      client.destroy()
    }
    expect(answers.toSorted()).toEqual(['one', 'one', 'two', 'two'])
  })

  it('share long connections by how many each of them has', async () => {
    await using one = await startReplica((socket) => void socket.write('one'))
    await using two = await startReplica((socket) => void socket.write('two'))
    let known: readonly Endpoint[] = [one]
    await using ingress = await start(() => known)
    const dial = async (): Promise<string> => {
      const client = ingress.dial()
      const [name] = (await once(client, 'data')) as [Buffer]
      return name.toString()
    }
    expect([await dial(), await dial()]).toEqual(['one', 'one'])
    known = [one, two]
    expect([await dial(), await dial()]).toEqual(['two', 'two'])
  })

  it('are asked for each time; one that refuses is skipped, and used again when it is back', async () => {
    const gone = await startReplica()
    await gone[Symbol.asyncDispose]()
    await using one = await startReplica(naming('one'))
    let known: readonly Endpoint[] = [gone, one]
    await using ingress = await start(() => known)
    expect([await text(ingress.dial()), await text(ingress.dial())]).toEqual(['one', 'one'])
    await using two = await startReplica(naming('two'))
    known = [gone, two]
    expect(await text(ingress.dial())).toBe('two')
    expect(ingress.state()).toBe('up')
  })

  it('that are all gone reset the client, and are told of', async () => {
    const gone = await startReplica()
    await gone[Symbol.asyncDispose]()
    for (const known of [[gone], []]) {
      await using ingress = await start(() => known)
      const client = ingress.dial()
      const [error] = (await once(client, 'error')) as [NodeJS.ErrnoException]
      expect(error.code).toBe('ECONNRESET')
      expect(ingress.state()).toBe('down')
    }
  })
})

describe('leaving', () => {
  it('takes no new connection and lets those in hand come to their end', async () => {
    await using replica = await startReplica()
    await using ingress = await start(() => [replica], 5_000)
    const taken = replica.taken()
    const client = ingress.dial()
    const upstream = await taken
    const gone = ingress.leave()
    const [refused] = (await once(ingress.dial(), 'error')) as [NodeJS.ErrnoException]
    upstream.end('the rest')
    expect(await text(client)).toBe('the rest')
    client.end()
    await gone
    expect(refused.code).toBe('ECONNREFUSED')
  })

  it('cuts what does not end by itself', async () => {
    await using replica = await startReplica()
    const ingress = await start(() => [replica])
    const taken = replica.taken()
    const client = ingress.dial()
    const ended = [once((await taken).resume(), 'end'), once(client.resume(), 'end')]
    await ingress.leave()
    await Promise.all(ended)
    expect(ingress.state()).toBe('up')
    client.destroy()
  })
})
