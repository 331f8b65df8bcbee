import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import { Redis } from 'ioredis'

const PROGRAM = 'redis-server'

export interface PrivateRedis extends AsyncDisposable {
  readonly url: string
  /** A connection for the benchmark itself. */
  readonly redis: Redis
}

/**
 * Starts a separate Redis on a free loopback port, with its files in a temporary folder. With the machine's own
 * Redis, other clients would be measured too, and keys of the benchmark would remain stored.
 */
export async function startPrivateRedis({
  appendOnly,
}: {
  /** `always` makes each write durable before its reply, like a commit of PostgreSQL. */
  readonly appendOnly: boolean | 'always'
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
    appendonly: appendOnly === false ? 'no' : 'yes',
    appendfsync: appendOnly === 'always' ? 'always' : 'everysec',
  }
  opened.use(
    startProcess(
      Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]),
      { program: PROGRAM },
    ),
  )
  const url = `redis://127.0.0.1:${port}`
  // ioredis retries a refused connection twenty times, which takes more than a second. The server starts within this
  // time.
  const redis = opened.adopt(new Redis(url), (connection) => connection.disconnect())
  redis.on('error', () => {})
  await redis.ping()
  const running = opened.move()
  return { url, redis, [Symbol.asyncDispose]: () => running.disposeAsync() }
}
