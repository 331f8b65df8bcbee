import { isFree } from '../src/process/free-ports.ts'

/**
 * The lowest port. All ports are below the ephemeral range of operating systems. A port of that range could be used by
 * an outgoing connection before the server under test listens on it.
 */
const FIRST = 10_000
const SLICE = 100
const SLICES = 55
/** The id of this worker of the test run. Each concurrent worker uses the range of ports that belongs to its id. */
const worker = Number(process.env['VITEST_POOL_ID'] ?? process.pid) % SLICES
const first = FIRST + worker * SLICE
/**
 * The offset of the next port. A random start keeps two concurrent test runs apart. This is module state on purpose,
 * because no port may be returned twice within a worker process.
 */
let next = Math.floor(Math.random() * SLICE)

/**
 * Returns loopback ports on which no process listens. The ports are for servers that must know their port before they
 * start.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = []
  for (let tried = 0; ports.length < count && tried < SLICE; tried += 1) {
    const port = first + (next++ % SLICE)
    if (await isFree(port)) ports.push(port)
  }
  if (ports.length < count) throw new Error(`no ${count} free ports from ${first} on`)
  return ports
}

/** Returns one port; see {@link freePorts}. */
export async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1)
  return port
}
