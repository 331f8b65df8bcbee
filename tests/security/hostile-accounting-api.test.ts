/**
 * Tests a real gateway with responses of a hostile accounting API. The responses have ambiguous framing or never end.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { companyInfoUrl, connectCompany } from '../support/clients/user-actions.ts'
import { startSystem, type System } from '../support/system.ts'

const REALM = '9341453908059889'
const HONEST = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'

const opened = new AsyncDisposableStack()
let system: System
let server: Server
/** Writes the fake accounting API's response to a request. */
let respond = (socket: Socket): void => void socket.write(HONEST)

beforeAll(async () => {
  const sockets = new Set<Socket>()
  server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', () => respond(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  opened.defer(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  system = opened.use(await startSystem(['sandbox-provider', 'token-service']))
  const { port } = server.address() as AddressInfo
  system.start('accounting-gateway', { ACCOUNTING_URL: `http://127.0.0.1:${port}` })
  await system.ready('accounting-gateway')
  await connectCompany(system, REALM)
})
afterAll(() => opened.disposeAsync())

/**
 * Calls the accounting API through the gateway. Resolves with the status, or with `cut` if the gateway closes the
 * connection before the end of the response.
 */
async function call(): Promise<number | 'cut'> {
  try {
    const response = await system.call(companyInfoUrl(system, REALM))
    await response.text()
    return response.status
  } catch {
    return 'cut'
  }
}

const headWith = (fields: string, version = '1.1'): string =>
  `HTTP/${version} 200 OK\r\n${fields}\r\n\r\n2\r\n{}\r\n0\r\n\r\n`

/**
 * Sends `start`, then sends `more` repeatedly as fast as the gateway reads, until the gateway closes the
 * connection.
 */
function flood(socket: Socket, start: string, more: string): void {
  socket.write(start)
  const write = (): void => {
    while (!socket.destroyed && socket.write(more));
  }
  socket.on('drain', write)
  write()
}

it.each<[string, (socket: Socket) => void, readonly (number | 'cut')[]]>([
  [
    'an endless reason phrase',
    (socket) => flood(socket, 'HTTP/1.1 200 ', 'x'.repeat(8_192)),
    [502],
  ],
  [
    'an endless chunk extension',
    (socket) =>
      flood(
        socket,
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n5;x=',
        'x'.repeat(8_192),
      ),
    [502, 'cut'],
  ],
  [
    'the transfer codings gzip and chunked',
    (socket) => socket.write(headWith('Transfer-Encoding: gzip, chunked')),
    [502],
  ],
  [
    'Transfer-Encoding in HTTP/1.0',
    (socket) => socket.write(headWith('Transfer-Encoding: chunked', '1.0')),
    [502],
  ],
  ['the version HTTP/2.0', (socket) => socket.write(HONEST.replace('HTTP/1.1', 'HTTP/2.0')), [502]],
])(
  'the gateway reports an error for a call whose response has %s, and serves the next call',
  async (_, hostile, outcomes) => {
    respond = hostile
    expect(outcomes).toContain(await call())
    respond = (socket) => socket.write(HONEST)
    expect(await call()).toBe(200)
  },
)
