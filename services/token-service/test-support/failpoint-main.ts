/**
 * Runs the service as a process that kills itself with SIGKILL at the failpoint in `DIES_AT`, without writing buffered
 * data, releasing a lease or logging. With `DIES_FOR=ACC-<realm>` it dies only at a failpoint of that credential. If
 * `DIES_AT` is not a failpoint, the process prints the failpoints and exits.
 *
 * With `DIES_OF=exception` or `DIES_OF=rejection` the process crashes with an unhandled error instead, while it holds
 * an uncommitted token pair. The error contains both tokens.
 */
import { writeSync } from 'node:fs'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { openBackends } from '../src/backends.ts'
import { readConfig } from '../src/config.ts'
import type { Grant } from '../src/credential/credential.ts'
import type { CredentialStore } from '../src/credential/credential-store.ts'
import { failpoints } from '../src/credential/refresh.ts'
import { startTokenService } from '../src/service.ts'

const points = [...failpoints, 'before publish', 'after confirm'] as const
type Point = (typeof points)[number]

const diesAt = points.find((point) => point === process.env['DIES_AT'])
const diesOf = process.env['DIES_OF']
const diesFor = process.env['DIES_FOR']

async function failpoint(point: Point, name?: string): Promise<void> {
  if (point !== diesAt || (diesFor !== undefined && diesFor !== name)) return
  writeSync(process.stdout.fd, `died ${point}\n`)
  process.kill(process.pid, 'SIGKILL')
  await new Promise(() => {}) // This promise never settles, because no further code may run before the signal arrives.
}

const untilConfirmed = (bus: MessageBus): MessageBus => ({
  ...bus,
  async publish(message) {
    await failpoint('before publish')
    await bus.publish(message)
    await failpoint('after confirm')
  },
})

/** Returns an error with tokens in its message, its members and its cause. A log must redact all of them. */
function defect({ name, accessToken, refreshToken }: Grant): Error {
  const tokens = { access: accessToken?.reveal(), refresh: refreshToken?.reveal() }
  const cause = new Error(`with {"refresh_token":"${tokens.refresh}"}`)
  const error = new TypeError(`${name}: cannot store ${tokens.access}`, { cause })
  return Object.assign(error, tokens)
}

const untilRefreshed = (store: CredentialStore): CredentialStore => ({
  ...store,
  async commit(lease, grant, ...rest) {
    if (diesOf === undefined) return store.commit(lease, grant, ...rest)
    // The error is thrown outside the promise chain of the caller, which therefore cannot catch it.
    if (diesOf === 'rejection') void Promise.reject(defect(grant))
    else
      setImmediate(() => {
        throw defect(grant)
      })
    return new Promise(() => {})
  },
})

await runService('token-service', async () => {
  if (diesAt === undefined && diesOf === undefined)
    throw new StartupError(`DIES_AT is one of ${JSON.stringify(points)}`)
  const config = readConfig()
  await using opened = new AsyncDisposableStack()
  const backends = opened.use(await openBackends(config))
  const service = opened.use(
    await startTokenService(config, {
      ...backends,
      store: untilRefreshed(backends.store),
      bus: untilConfirmed(backends.bus),
      failpoint,
    }),
  )
  const running = opened.move()
  return { url: service.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
})
