import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { createFastPath, type Serve } from '../src/server/fast-path.ts'

/** Starts a fast path without a gateway behind it. The function `serve` of the test responds to the requests. */
export async function startFastPath(
  opened: AsyncDisposableStack,
  serve: Serve,
  { mayBuffer = true }: { readonly mayBuffer?: boolean } = {},
) {
  const fastPath = createFastPath({ serve, mayBuffer: () => mayBuffer })
  const sockets: Socket[] = []
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket)
    fastPath.accept(socket, () => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  opened.defer(() => {
    fastPath.shutDown()
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { fastPath, sockets, port: (server.address() as AddressInfo).port }
}

/** Opens a caller's connection that reads no bytes until `reads` is called. */
export async function slowCaller(opened: AsyncDisposableStack, port: number) {
  const socket = connect(port, '127.0.0.1')
  opened.defer(() => void socket.destroy())
  socket.on('error', () => {})
  await once(socket, 'connect')
  /** Resolves with true when the caller has read `bytes` bytes, or with false if the connection closes earlier. */
  const reads = (bytes: number): Promise<boolean> =>
    new Promise((resolve) => {
      let count = 0
      socket.on('data', (part: Buffer) => {
        count += part.length
        if (count >= bytes) resolve(true)
      })
      socket.on('close', () => resolve(false))
    })
  return { socket, reads }
}

/**
 * The body is longer than the socket buffers of both sides together. A caller that does not read therefore causes
 * backpressure.
 */
export const LONG = Buffer.alloc(16_000_000, 'x')
