import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * The range of the ports. It ends below the range from which Linux takes the ports of outgoing connections. An outgoing
 * connection could take a port of that range after the check, before the server listens on the port.
 */
const FIRST = 16_000
const END = 32_768

/**
 * Returns loopback ports on which no process listens, next to each other if possible. The search starts at a random
 * port, so that two processes that search at the same time find different ports.
 */
export async function freePorts(count: number): Promise<number[]> {
  const start = FIRST + Math.floor(Math.random() * (END - FIRST - 1_000))
  const ports: number[] = []
  for (let port = start; port < END && ports.length < count; port += 1)
    if (await isFree(port)) ports.push(port)
  if (ports.length < count) throw new Error(`fewer than ${count} free ports from ${start} on`)
  return ports
}

/** Returns whether no process listens on a loopback port. */
export async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening')
  } catch {
    return false
  }
  await new Promise((done) => server.close(done))
  return true
}
