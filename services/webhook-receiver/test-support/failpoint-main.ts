/**
 * Runs the service as an OS process for the fault tests. The process kills itself with SIGKILL at the failpoint in
 * `DIES_AT`. If `DIES_AT` is not a failpoint, the process prints the failpoints and exits. The failpoints of the
 * message bus are reached only if a delivery contains a change.
 */
import { writeSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { MessageBus } from '@integration-host/shared/messaging/message-bus'
import { runService, StartupError } from '@integration-host/shared/process/lifecycle'
import { openBackends } from '../src/backends.ts'
import { readConfig } from '../src/config.ts'
import { failpoints } from '../src/delivery/accept-delivery.ts'
import { startWebhookReceiver } from '../src/service.ts'

const points = [...failpoints, 'first event confirmed', 'events sent'] as const
type Point = (typeof points)[number]

const diesAt = points.find((point) => point === process.env['DIES_AT'])

async function failpoint(point: Point): Promise<void> {
  if (point !== diesAt) return
  writeSync(process.stdout.fd, `died ${point}\n`)
  process.kill(process.pid, 'SIGKILL')
  await new Promise(() => {}) // never settles: no further code may run before the signal arrives
}

/**
 * Returns a bus that kills the process at one of two failpoints. At `first event confirmed`, the broker has confirmed
 * one event, and no other event was sent. At `events sent`, all events were sent.
 */
function untilKilled(bus: MessageBus): MessageBus {
  let first: Promise<void> | null = null
  return {
    ...bus,
    async publish(message) {
      if (diesAt === 'first event confirmed') {
        await (first ??= bus.publish(message))
        return failpoint('first event confirmed')
      }
      const published = bus.publish(message)
      published.catch(() => {})
      if (diesAt === 'events sent') {
        // The driver writes a message to the socket at the end of the current turn of the event loop.
        await nextTurn()
        await nextTurn()
        await failpoint('events sent')
      }
      return published
    },
  }
}

await runService('webhook-receiver', async () => {
  if (diesAt === undefined) throw new StartupError(`DIES_AT is one of ${JSON.stringify(points)}`)
  const config = readConfig()
  await using opened = new AsyncDisposableStack()
  const backends = opened.use(openBackends(config))
  const service = opened.use(
    await startWebhookReceiver(config, { ...backends, bus: untilKilled(backends.bus), failpoint }),
  )
  const running = opened.move()
  return { url: service.url, [Symbol.asyncDispose]: () => running.disposeAsync() }
})
