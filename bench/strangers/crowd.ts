/**
 * A process with many clients that have no key. Each client opens a connection to one endpoint and sends a request
 * at regular intervals. When the server closes the connection, the client opens a new connection. Every second the
 * process prints one line of JSON with the number of responses by status class and the number of failed connections.
 */
import { connect, type Socket } from 'node:net'

export interface CrowdSettings {
  readonly count: number
  readonly everySeconds: number
  /** The port and the bytes of each request. The clients are distributed evenly over these requests. */
  readonly requests: readonly { readonly port: number; readonly bytes: string }[]
}

/** Number of responses by the first digit of their status, and number of failed connections. */
export type CrowdCounts = Readonly<Record<string, number>>

const { count, everySeconds, requests } = JSON.parse(process.argv[2] ?? '') as CrowdSettings
const counts: Record<string, number> = {}
const add = (name: string): void => void (counts[name] = (counts[name] ?? 0) + 1)

function startClient(index: number): void {
  const { port, bytes } = requests[index % requests.length] ?? { port: 0, bytes: '' }
  let socket: Socket | undefined
  const send = (): void => {
    if (socket === undefined || socket.destroyed || !socket.writable) {
      socket = connect(port, '127.0.0.1')
      socket.on('error', () => add('failed'))
      socket.on('data', (data) => {
        const status = /^HTTP\/1\.1 (\d)/.exec(data.subarray(0, 16).toString('latin1'))?.[1]
        if (status !== undefined) add(`${status}xx`)
      })
    }
    socket.write(bytes)
  }
  // The clients start one after the other during the first interval, so that the rate is even.
  setTimeout(
    () => {
      send()
      setInterval(send, everySeconds * 1_000)
    },
    (index / count) * everySeconds * 1_000,
  )
}
for (let index = 0; index < count; index += 1) startClient(index)
setInterval(() => console.log(JSON.stringify(counts)), 1_000)
