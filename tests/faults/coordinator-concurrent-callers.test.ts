import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { startStepTarget } from '../support/fakes/step-target.ts'
import { openDatabase } from '../support/faults/database-assertions.ts'
import { isFaultRun } from '../support/faults/scale.ts'
import { startSystem } from '../support/system.ts'

const CALLERS = 1_000

describe.runIf(isFaultRun)('a thousand concurrent requests that queue the same order', () => {
  it(
    'a thousand concurrent requests for one order start one run',
    { timeout: 60_000 },
    async ({ annotate }) => {
      await using target = await startStepTarget()
      await using system = await startSystem([])
      system.start('coordinator', { DEMO_API_URL: target.url })
      system.start('demo-api')
      await system.ready('coordinator', 'demo-api')
      await using database = await openDatabase(system)
      let retries = 0
      const queue = async (): Promise<string> => {
        const response = await fetch(`${system.url('demo-api')}/queue?number=7`)
        const text = await response.text()
        if (response.status !== 503) return `${response.status} ${text}`
        // On a busy machine a request may time out although the coordinator has queued the order. Therefore the
        // request is repeated.
        retries += 1
        return queue()
      }
      const responses = await Promise.all(Array.from({ length: CALLERS }, queue))
      expect(new Set(responses)).toEqual(new Set(['200 Enqueued 7']))
      await eventually(async () =>
        expect(await database.countRuns()).toEqual({ runs: 1, completed: 1 }),
      )
      expect(await database.expectConsistent(['7'], target)).toEqual({
        inDoubt: 0,
        repeatedCalls: 0,
      })
      expect(target.calls).toHaveLength(2)
      await annotate(
        `${CALLERS} concurrent GET /queue?number=7: 1 header, 1 run, 2 calls; ${retries} responses 503, retried`,
        'measurement',
      )
    },
  )
})
