import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Below what operating systems give to connections of their own: a port from there may be taken, by anybody's
 * connection, before the server under test listens on it.
 */
const FIRST = 10_000
const SLICE = 100
const SLICES = 55
/** Workers of a run that live at the same time have other numbers, so each asks among ports that are its own; */
const worker = Number(process.env['VITEST_POOL_ID'] ?? process.pid) % SLICES
const first = FIRST + worker * SLICE
/** and those of another run beside it begin elsewhere. */
let asked = Math.floor(Math.random() * SLICE)

/** Ports of the loopback interface that nothing listens on now, for servers that have to know theirs beforehand. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = []
  for (let tried = 0; ports.length < count && tried < SLICE; tried += 1) {
    const port = first + (asked++ % SLICE)
    if (await isFree(port)) ports.push(port)
  }
  if (ports.length < count) throw new Error(`no ${count} free ports from ${first} on`)
  return ports
}

/** See {@link freePorts}. */
export async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1)
  return port
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  } catch {
    return false
  }
  server.close()
  await once(server, 'close')
  return true
}
