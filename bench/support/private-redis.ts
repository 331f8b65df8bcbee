import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { Redis } from 'ioredis'

const PROGRAM = 'redis-server'

export interface PrivateRedis extends AsyncDisposable {
  readonly url: string
  /** The benchmark's own connection. */
  readonly redis: Redis
}

/**
 * A Redis of the benchmark's own on a free loopback port, its files in a temporary folder: what others do
 * with the machine's Redis must not be counted, and what is stored here must not stay.
 */
export async function startPrivateRedis({
  appendOnly,
}: {
  readonly appendOnly: boolean
}): Promise<PrivateRedis> {
  await using opened = new AsyncDisposableStack()
  const folder = opened.adopt(await mkdtemp(join(tmpdir(), 'integration-host-bench-')), (path) =>
    rm(path, { recursive: true }),
  )
  const port = await freePort()
  const settings = {
    port: String(port),
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    appendonly: appendOnly ? 'yes' : 'no',
  }
  const server = spawn(
    PROGRAM,
    Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
    { stdio: 'ignore' },
  )
  const gone = once(server, 'exit')
  opened.defer(async () => {
    server.kill('SIGKILL')
    await gone
  })
  const url = `redis://127.0.0.1:${port}`
  // Refused until the server listens; the twenty tries of the driver's default take a second and more.
  const redis = opened.adopt(new Redis(url), (connection) => connection.disconnect())
  redis.on('error', () => {})
  await redis.ping()
  const running = opened.move()
  return { url, redis, [Symbol.asyncDispose]: () => running.disposeAsync() }
}
