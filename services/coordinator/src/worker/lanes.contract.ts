import {
  BUSY_LANES,
  busyLanesOf,
  HIGH_LANE,
  lanesOf,
  stepQueue,
} from '@integration-host/shared/contracts/topology'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  type Backends,
  type Fixture,
  openBackends,
  startFixture,
} from '../../test-support/fixture.ts'
import { defineProcess } from '../step/define-process.ts'

const PREFETCH = 4
const BURST = 100

/** The companies of the runs in the order in which their first and second steps started. */
const started = { first: [] as string[], second: [] as string[] }
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
const turns = defineProcess('Turns')
  .step('first', async (step) => {
    started.first.push(step.initialData as string)
    await turn()
    return step.complete()
  })
  .step('second', async (step) => {
    started.second.push(step.initialData as string)
    await turn()
    return step.complete()
  })
const busy = defineProcess('Busy').step('busy', (step) => {
  started.first.push(step.initialData as string)
  return step.complete()
})

/** Tests of fair turns between companies. All backends must pass these tests. */
export function lanesContract(kind: 'embedded' | 'real'): void {
  describe(`fair turns between companies on ${kind} backends`, () => {
    let backends: Backends
    let host: Fixture
    beforeEach(async () => {
      started.first = []
      started.second = []
      backends = await openBackends(kind, { Turns: ['first', 'second'], Busy: ['busy'] })
      host = await startFixture(backends, {
        processes: [turns, busy],
        env: { PREFETCH: `${PREFETCH}` },
      })
    })
    afterEach(async () => {
      await host[Symbol.asyncDispose]()
      await backends[Symbol.asyncDispose]()
    })
    const act = async (action: 'pause' | 'resume', process = 'Turns') => {
      const response = await host.call(`/processes/${process}/${action}`, { method: 'POST' })
      expect(response.status).toBe(200)
    }
    const queue = async (
      realm: string,
      count: number,
      process = 'Turns',
      more: object = { Realm: realm },
    ) => {
      const lines = Array.from({ length: count }, (_, n) =>
        JSON.stringify({ TransactionID: `${realm}-${n}`, InitialData: realm, ...more }),
      )
      const response = await host.call(`/processes/${process}/transactions/bulk`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/x-ndjson' },
        body: lines.join('\n'),
      })
      expect(response.status).toBeLessThan(300)
    }
    const readyIn = async (names: readonly string[], process = 'Turns'): Promise<number> => {
      const depths = names.map((name) => host.bus.depth(stepQueue(process, name)))
      return (await Promise.all(depths)).reduce((sum, depth) => sum + (depth?.ready ?? 0), 0)
    }

    it('a single run of a company starts before the burst of another company that was queued earlier, in every step', async () => {
      await act('pause')
      await queue('42', BURST)
      await queue('43', 1)
      await eventually(async () => {
        expect(await readyIn(['first'])).toBe(PREFETCH + 1)
        expect(await readyIn(BUSY_LANES)).toBe(BURST - PREFETCH)
      })
      await act('resume')
      await eventually(() => expect(started.second).toHaveLength(BURST + 1))
      expect(started.first.indexOf('43')).toBeLessThan(BURST / 2)
      expect(started.second.indexOf('43')).toBeLessThan(BURST / 2)
    })

    it('runs with high priority have four of five deliveries, and the others go on', async () => {
      await act('pause')
      await queue('normal', BURST, 'Turns', {})
      await queue('high', BURST, 'Turns', { Priority: 'high' })
      await eventually(async () => {
        expect(await readyIn(['first'])).toBe(BURST)
        expect(await readyIn([HIGH_LANE])).toBe(BURST)
      })
      await act('resume')
      await eventually(() => expect(started.second).toHaveLength(2 * BURST))
      const high = started.first.lastIndexOf('high')
      expect(high).toBeLessThan(started.first.lastIndexOf('normal'))
      expect(started.first.slice(0, high)).toContain('normal')
    })

    it('the integrity report shows what waits in the lanes', async () => {
      await act('pause')
      await queue('a', 10)
      await eventually(async () => {
        const response = await host.call('/integrity')
        const report = (await response.json()) as {
          readonly ok: boolean
          readonly lanes: readonly { process: string; lane: string; messages: number }[]
        }
        expect(report.ok).toBe(true)
        const ofTurns = report.lanes.filter(({ process }) => process === 'Turns')
        expect(ofTurns.map(({ lane }) => lane)).toEqual(lanesOf(['first', 'second']))
        expect(ofTurns.reduce((sum, { messages }) => sum + messages, 0)).toBe(10 - PREFETCH)
      })
    })

    it('a process with a place of the name of a lane runs as before', async () => {
      expect(busyLanesOf(['busy'])).toEqual([])
      await act('pause', 'Busy')
      await queue('42', 20, 'Busy')
      await eventually(async () => expect(await readyIn(['busy'], 'Busy')).toBe(20))
      await act('resume', 'Busy')
      await eventually(() => expect(started.first).toHaveLength(20))
    })

    it('a message in a lane whose step only another version of the process has goes to the queue of the step', async () => {
      const body = {
        v: 1,
        Process: 'Turns',
        TransactionID: 'x',
        ReplayID: 0,
        Step: 'third',
        Version: 0,
      }
      await host.bus.declare({
        exchanges: [],
        queues: [
          {
            name: stepQueue('Turns', 'third'),
            bindings: [{ exchange: 'integration.steps', routingKey: 'Turns.third' }],
          },
        ],
      })
      await host.bus.publish({
        exchange: 'integration.steps',
        routingKey: 'Turns.busy',
        messageId: 'lane-1',
        type: 'step',
        body,
        mandatory: true,
      })
      await eventually(async () => expect(await readyIn(['third'])).toBe(1))
      expect(await readyIn(BUSY_LANES)).toBe(0)
    })
  })
}
