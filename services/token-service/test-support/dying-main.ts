/**
 * The service as a process that ends itself with SIGKILL at the point of the protocol that `DIES_AT` names:
 * nothing is flushed, released or told. With another value it tells the points there are, and leaves.
 */
import { writeSync } from 'node:fs'
import { runService, StartRefused } from '@integration-host/shared/lifecycle'
import type { MessageBus } from '@integration-host/shared/message-bus'
import { openBackends } from '../src/backends.ts'
import { readConfig } from '../src/config.ts'
import { refreshPoints } from '../src/credential/refresh.ts'
import { startTokenService } from '../src/service.ts'

const points = [...refreshPoints, 'before publish', 'after confirm'] as const
type Point = (typeof points)[number]

const diesAt = points.find((point) => point === process.env['DIES_AT'])

async function reach(point: Point): Promise<void> {
  if (point !== diesAt) return
  writeSync(process.stdout.fd, `died ${point}\n`)
  process.kill(process.pid, 'SIGKILL')
  await new Promise(() => {}) // not one step further, should the signal take its time
}

const untilConfirmed = (bus: MessageBus): MessageBus => ({
  ...bus,
  async publish(message) {
    await reach('before publish')
    await bus.publish(message)
    await reach('after confirm')
  },
})

await runService('token-service', async () => {
  if (diesAt === undefined) throw new StartRefused(`DIES_AT is one of ${JSON.stringify(points)}`)
  const config = readConfig()
  await using opened = new AsyncDisposableStack()
  const backends = opened.use(await openBackends(config))
  const service = opened.use(
    await startTokenService(config, { ...backends, bus: untilConfirmed(backends.bus), reach }),
  )
  const running = opened.move()
  return { url: service.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
})
