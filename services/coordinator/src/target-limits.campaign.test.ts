/** Tests the limits of targets over two coordinators. The assertions use only what the target itself has recorded. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type Backends, type Fixture, openBackends, startFixture } from '../test-support/fixture.ts'
import { startTarget, type Target as FakeTarget } from '../test-support/fake-target.ts'
import { defineProcess } from './step/api.ts'
import type { Target } from './step/targets.ts'

type Limits = Pick<Target, 'perSecond' | 'concurrent'>

interface Arrival {
  readonly at: number
  /** The coordinator that sent the request. */
  readonly from: string
  /** The number of requests in flight, including this one. */
  readonly inFlight: number
  /** The number of requests of the same coordinator in flight, including this one. */
  readonly ownInFlight: number
}

let backends: Backends
let target: FakeTarget
let arrivals: Arrival[]
let hosts: Fixture[]
/** Sends the response, after the request was recorded. */
let respond: (response: ServerResponse) => void | Promise<void>

beforeEach(async () => {
  backends = await openBackends('real', { Limited: ['call'] })
  target = await startTarget()
  arrivals = []
  hosts = []
  respond = (response) => void response.end('{}')
  const inFlight: string[] = []
  target.on('/orders', async (request: IncomingMessage, response: ServerResponse) => {
    const from = String(request.headers['x-from'])
    inFlight.push(from)
    response.once('close', () => inFlight.splice(inFlight.indexOf(from), 1))
    arrivals.push({
      at: performance.now(),
      from,
      inFlight: inFlight.length,
      ownInFlight: inFlight.filter((one) => one === from).length,
    })
    await respond(response)
  })
})
afterEach(async () => {
  await Promise.all(hosts.map((host) => host[Symbol.asyncDispose]()))
  await target[Symbol.asyncDispose]()
  await backends[Symbol.asyncDispose]()
})

/** Starts a coordinator whose calls contain its name. */
async function start(from: string, limits: Limits): Promise<void> {
  const process = defineProcess('Limited', {
    targets: { erp: { url: target.url, timeoutMs: 5_000, ...limits } },
  }).step('call', (step) =>
    step.execute({ target: 'erp', path: '/orders', method: 'POST', headers: { 'x-from': from } }),
  )
  hosts.push(await startFixture(backends, { processes: [process], env: { PREFETCH: '20' } }))
}

/** Queues runs at both coordinators. Resolves when all runs are completed. */
async function complete(count: number) {
  const ids = Array.from({ length: count }, (_, n) => `run-${n}`)
  await Promise.all(
    hosts.flatMap((host, h) =>
      ids.filter((_, n) => n % hosts.length === h).map((id) => host.queue(id)),
    ),
  )
  const runs = []
  for (const id of ids) runs.push(await hosts[0]?.reached(id, 'Completed'))
  return runs
}

const respondSlowly = async (response: ServerResponse): Promise<void> => {
  await sleep(50)
  response.end('{}')
}

const senders = (): Set<string> => new Set(arrivals.map(({ from }) => from))

describe('two coordinators that call a target with limits', () => {
  it('two coordinators together send no more calls per second than the limit `perSecond` allows', async () => {
    const perSecond = 20
    await start('a', { perSecond })
    await start('b', { perSecond })
    await complete(60)
    expect(arrivals).toHaveLength(60)
    expect(senders()).toEqual(new Set(['a', 'b']))
    const inSecondAfter = (from: number): number =>
      arrivals.filter(({ at }) => at >= from && at < from + 1_000).length
    const most = Math.max(...arrivals.map(({ at }) => inSecondAfter(at)))
    // A call may be sent 100 ms after its reserved time, and may need another 100 ms to arrive.
    expect(most).toBeLessThanOrEqual(perSecond + 1 + 2 * (perSecond / 10))
    // If even the busiest second had far fewer calls, the limit would be applied more strictly than specified.
    expect(most).toBeGreaterThanOrEqual(perSecond / 4)
  })

  it('two coordinators together have no more calls in flight than the limit `concurrent` allows, and no failed attempt is counted', async () => {
    respond = respondSlowly
    await start('a', { concurrent: 3 })
    await start('b', { concurrent: 3 })
    const runs = await complete(60)
    expect(arrivals).toHaveLength(60)
    expect(senders()).toEqual(new Set(['a', 'b']))
    expect(Math.max(...arrivals.map(({ inFlight }) => inFlight))).toBe(3)
    for (const run of runs)
      expect(run?.Attempts).toMatchObject([{ Attempt: 1, Outcome: 'completed' }])
  })

  it('if two coordinators run different versions of the process, each of them applies the limit of its own version', async () => {
    respond = respondSlowly
    await start('lower', { concurrent: 1 })
    await start('higher', { concurrent: 3 })
    await complete(40)
    // On the way to the target, a call of one coordinator can overtake a call of the other. So for each coordinator,
    // only its own calls in flight are counted.
    const most = (from: string): number =>
      Math.max(...arrivals.filter((one) => one.from === from).map((one) => one.ownInFlight))
    expect(most('lower')).toBe(1)
    expect(most('higher')).toBeGreaterThan(1)
    expect(most('higher')).toBeLessThanOrEqual(3)
  })

  it('while a target is in a cool-down after a 429, neither of two coordinators calls it', async () => {
    let rejectedAt: number | null = null
    respond = (response) => {
      if (rejectedAt === null) {
        rejectedAt = performance.now()
        response.writeHead(429, { 'Retry-After': '2' })
      }
      response.end('{}')
    }
    // One call at a time is allowed, so no other call is in flight or reserved when the 429 arrives.
    await start('a', { concurrent: 1 })
    await start('b', { concurrent: 1 })
    await complete(10)
    expect(senders()).toEqual(new Set(['a', 'b']))
    const start429 = rejectedAt ?? 0
    const during = arrivals.filter(({ at }) => at > start429 && at < start429 + 2_000)
    expect(during).toEqual([])
    expect(arrivals).toHaveLength(11)
  })
})
