import type { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { type ClosingReason, Connections, connectionState } from './connections.ts'

const LIMIT = 3

let connections: Connections
let closed: ClosingReason[]
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
  closed = []
  connections = new Connections(LIMIT, (reason) => void closed.push(reason))
})
afterEach(() => void vi.useRealTimers())

const wait = (ms: number): void => void vi.advanceTimersByTime(ms)

/**
 * Opens a connection. With `isKeyed` the connection is authenticated. With `served` or `isKeyed`, the first request of
 * the connection has received a response.
 */
function open({ isKeyed = false, served = false } = {}): Socket {
  const socket = new Socket()
  connections.add(socket)
  const state = connectionState(socket)
  state.isAuthenticated = isKeyed
  if (served || isKeyed) {
    state.begin(null)
    state.end()
  }
  return socket
}

const begin = (socket: Socket, request: { readonly complete: boolean } | null = null): void =>
  connectionState(socket).begin(request as IncomingMessage | null)

const openOnes = (sockets: readonly Socket[]): boolean[] =>
  sockets.map(({ destroyed }) => !destroyed)

describe('accepting a connection at the connection limit', () => {
  it('at the connection limit, a new connection replaces the unauthenticated connection that has been idle longest', () => {
    const sockets = [open({ served: true }), open(), open({ served: true })]
    wait(10)
    begin(sockets[0] as Socket)
    connectionState(sockets[0] as Socket).end()
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([true, false, true, true])
    expect(closed).toEqual(['room'])
  })

  it('at the connection limit, an unauthenticated connection is replaced even if authenticated connections are idle longer', () => {
    const sockets = [open({ isKeyed: true }), open({ isKeyed: true })]
    wait(60_000)
    sockets.push(open(), open())
    expect(openOnes(sockets)).toEqual([true, true, false, true])
  })

  it('if all connections are authenticated, a connection beyond the limit replaces the connection that is idle longest', () => {
    const sockets = Array.from({ length: LIMIT }, () => open({ isKeyed: true }))
    begin(sockets[0] as Socket)
    wait(1_000)
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([true, false, true, true])
  })

  it('at the connection limit, a new connection replaces an unauthenticated connection whose request body is incomplete', () => {
    const sockets = [open({ isKeyed: true }), open(), open({ isKeyed: true })]
    begin(sockets[1] as Socket, { complete: false })
    wait(60_000)
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([true, false, true, true])
  })

  it.each<[string, (socket: Socket) => void]>([
    ['a request in flight', begin],
    ['a request whose body is arriving', (socket) => begin(socket, { complete: false })],
    [
      'a response of which the server has sent only a part',
      (socket) => void Object.defineProperty(socket, 'writableLength', { value: 1 }),
    ],
  ])(
    'at the connection limit, a new connection is closed if all other connections are authenticated and have %s',
    (_, occupy) => {
      const sockets = Array.from({ length: LIMIT }, () => open({ isKeyed: true }))
      sockets.forEach(occupy)
      wait(3_600_000)
      sockets.push(open())
      expect(openOnes(sockets)).toEqual([true, true, true, false])
      expect(closed).toEqual(['full'])
    },
  )

  it('at the connection limit, a new connection is closed if all other connections are authenticated and have just received a response', () => {
    const sockets = Array.from({ length: LIMIT }, () => open({ isKeyed: true }))
    wait(999)
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([true, true, true, false])
  })

  it('at the connection limit, an unauthenticated connection is replaced if its request has been in flight for ten seconds', () => {
    const sockets = Array.from({ length: LIMIT }, () => open())
    for (const socket of sockets) begin(socket)
    wait(9_999)
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([true, true, true, false])
    wait(1)
    sockets.push(open())
    expect(openOnes(sockets)).toEqual([false, true, true, false, true])
  })
})

it('the server closes unauthenticated connections five seconds after their last response, but keeps authenticated connections open', () => {
  const idle = open({ served: true })
  const others = [open({ isKeyed: true }), open({ served: true })]
  begin(others[1] as Socket)
  wait(4_999)
  connections.closeExpired()
  expect(closed).toEqual([])
  wait(1)
  connections.closeExpired()
  expect(openOnes([idle, ...others])).toEqual([false, true, true])
  expect(closed).toEqual(['idle'])
})

it('the server closes an unauthenticated connection if no request begins within 30 seconds', () => {
  const silent = open()
  const others = [open({ isKeyed: true }), open()]
  begin(others[1] as Socket)
  wait(29_999)
  connections.closeExpired()
  expect(closed).toEqual([])
  wait(1)
  connections.closeExpired()
  expect(openOnes([silent, ...others])).toEqual([false, true, true])
  expect(closed).toEqual(['idle'])
})
