/** Tests steps that call targets with limits. target-limiter.test.ts tests the limits themselves. */
import { setImmediate as turn } from 'node:timers/promises'
import { IntegrationError } from '@integration-host/shared/errors'
import { until } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { answered, outcomeOf, stoppedClock } from '../../test-support/step-outcome.ts'
import { createMemoryTargetCalls } from '../adapters/memory/target-calls.ts'
import type { TargetCalls } from '../run/target-calls.ts'
import { createCoolDowns } from './cool-downs.ts'
import { defineProcess } from './define-process.ts'
import type { CallOutcome } from './http-call.ts'
import { StepAbort } from './step-abort.ts'
import { defineStep, type Step } from './step.ts'
import { createTargetLimiter } from './target-limiter.ts'
import { defineTarget } from './targets.ts'

const erp = { Process: 'P', Target: 'erp' }
const definition = defineProcess('P', {
  targets: {
    erp: { url: 'http://erp.example', concurrent: 1, timeoutMs: 3_000 },
    open: { url: 'http://open.example' },
  },
})
  .step('first', (step) => step.complete())
  .step('second', (step) => step.complete())

const post = { target: 'erp', path: '/x', method: 'POST' } as const
const executing = (step: Step) => step.execute(post)
const fetching = async (step: Step) => {
  await step.fetch(post)
  return step.complete()
}
const finding = defineStep((step: Step) => step.complete(), {
  confirm: async (step) => {
    await step.find(post)
    return step.complete()
  },
})

/** Counts the occupied slots of the target: slots of calls in flight, and slots that were never released. */
function startSource(change: Partial<TargetCalls> = {}) {
  const memory = createMemoryTargetCalls(() => 0)
  const held = new Set<string>()
  const statements: string[] = []
  const source: TargetCalls = {
    async reserveCall(request) {
      statements.push('reserve')
      const result = await memory.reserveCall(request)
      if (result.kind === 'reserved') held.add(request.slot)
      return result
    },
    async releaseCalls(target, slots) {
      statements.push('release')
      for (const slot of slots) held.delete(slot)
      return memory.releaseCalls(target, slots)
    },
    async coolDownTarget(target, ms) {
      statements.push('cool down')
      return memory.coolDownTarget(target, ms)
    },
    ...change,
  }
  const limiter = createTargetLimiter({ source, clock: stoppedClock })
  return { source, limiter, held, statements }
}
const occupied = {
  ...erp,
  limits: { intervalMs: 0, concurrent: 1 },
  slot: 'other',
  maxWaitMs: 0,
  holdMs: 1,
}

describe('a step that calls a target with limits', () => {
  it.each([
    ['execute', executing, false],
    ['fetch', fetching, false],
    ['find', finding, true],
  ] as const)('%s() occupies a slot while its call is in flight', async (_, run, isInDoubt) => {
    const { limiter, held } = startSource()
    const during: number[] = []
    const { outcome } = await outcomeOf(run, [], {
      definition,
      limiter,
      isInDoubt,
      call: async (_request, { timeoutMs }) => {
        during.push(held.size, timeoutMs)
        return answered(200)
      },
    })
    expect(outcome.kind).toBe('completed')
    expect(during).toEqual([1, 3_000])
    expect(held.size).toBe(0)
  })

  it.each([
    ['execute', executing, false],
    ['fetch', fetching, false],
    ['find', finding, true],
  ] as const)(
    '%s() ends the attempt if the target is at its limits, and the attempt is not counted',
    async (_, run, isInDoubt) => {
      const { source, limiter } = startSource()
      await source.reserveCall(occupied)
      const { outcome, calls } = await outcomeOf(run, [answered(200)], {
        definition,
        limiter,
        isInDoubt,
        endsAt: 0,
      })
      expect(calls).toEqual([])
      expect(outcome).toMatchObject({
        kind: 'held',
        errorClass: 'target_held',
        error: 'POST http://erp.example/x was not sent: erp is at its limits',
        response: null,
        delayMs: 1_000,
      })
    },
  )

  it.each<[string, CallOutcome]>([
    ['an error', answered(500)],
    ['no response', { kind: 'failed', reason: 'ECONNRESET', isSent: true }],
    ['an abort', { kind: 'aborted', isSent: true }],
  ])('the slot of a call is released if the call has ended with %s', async (_, ending) => {
    const { limiter, held, statements } = startSource()
    await outcomeOf(executing, [ending], { definition, limiter })
    expect(statements).toEqual(['reserve', 'release'])
    expect(held.size).toBe(0)
  })

  it('a step that is aborted while its call waits for a limit sends no call, occupies no slot and counts no attempt', async () => {
    const { source, limiter, held } = startSource()
    await source.reserveCall(occupied)
    const abort = new StepAbort()
    const running = outcomeOf(executing, [answered(200)], { definition, limiter, abort })
    await turn()
    abort.blockNewCalls()
    const { outcome, calls } = await running
    expect(calls).toEqual([])
    expect(outcome).toEqual({ kind: 'released' })
    expect([...held]).toEqual(['other'])
  })

  it('a call that waits for a limit is not sent after its step has ended', async () => {
    const { source, limiter, held, statements } = startSource()
    await source.reserveCall(occupied)
    const { outcome, calls } = await outcomeOf(
      async (step: Step) => {
        step.execute(post).catch(() => {})
        await turn()
        step.fail('enough')
      },
      [answered(200)],
      { definition, limiter },
    )
    await source.releaseCalls(erp, ['other'])
    await until(() => statements.filter((statement) => statement === 'release').length === 2)
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_failed' })
    expect(calls).toEqual([])
    expect(held.size).toBe(0)
  })

  it('a call to a target with limits is not sent while the store is unavailable, and the attempt is not counted', async () => {
    const { limiter } = startSource({
      reserveCall: () => Promise.reject(new IntegrationError('store_unavailable', 'down')),
    })
    const { outcome, calls } = await outcomeOf(executing, [answered(200)], { definition, limiter })
    expect(calls).toEqual([])
    expect(outcome).toEqual({ kind: 'released' })
  })

  it.each([
    [429, '7', 7_000],
    [429, null, 60_000],
    [503, '7', 7_000],
  ])(
    'a %d with Retry-After %s starts a cool-down of %d ms for all replicas',
    async (status, retryAfter, ms) => {
      const { source, limiter, statements } = startSource()
      const first = await outcomeOf(executing, [answered(status, '', retryAfter)], {
        definition,
        limiter,
      })
      // The cool-down is stored before the slot is released. Otherwise another replica could call the target in
      // between.
      expect(statements).toEqual(['reserve', 'cool down', 'release'])
      expect(first.outcome).toMatchObject({ kind: 'held', errorClass: `http_${status}` })
      // The second limiter stands for another replica, which has its own limiter and cool-downs.
      const other = createTargetLimiter({ source, clock: stoppedClock })
      const second = await outcomeOf(executing, [answered(200)], { definition, limiter: other })
      expect(second.calls).toEqual([])
      expect(second.outcome).toMatchObject({ kind: 'held', errorClass: 'target_held', delayMs: ms })
    },
  )

  it('a call that waits for a limit is not sent if another step gets a 429 meanwhile', async () => {
    const { limiter, held } = startSource()
    const coolDowns = createCoolDowns(() => 0)
    const running = outcomeOf(executing, [answered(200)], { definition, limiter, coolDowns })
    coolDowns.start('target:P/erp', 9_000)
    const { outcome, calls } = await running
    expect(calls).toEqual([])
    expect(outcome).toMatchObject({ kind: 'held', errorClass: 'target_held', delayMs: 9_100 })
    expect(held.size).toBe(0)
  })

  it('the calls of two processes to a shared target are counted together, and share a cool-down', async () => {
    const shared = defineTarget('erp', { url: 'http://erp.example', concurrent: 1 })
    const processes = ['erp', 'ledger'].map((name) =>
      defineProcess(`Of-${name}`, { targets: { [name]: shared } }).step('first', (step) =>
        step.complete(),
      ),
    )
    const keys: string[] = []
    const memory = createMemoryTargetCalls(() => 0)
    const source: TargetCalls = {
      ...memory,
      async reserveCall(request) {
        keys.push(`${request.Process}/${request.Target}`)
        return memory.reserveCall(request)
      },
    }
    const limiter = createTargetLimiter({ source, clock: stoppedClock })
    const coolDowns = createCoolDowns(() => 0)
    const calling = (n: number, target: string, answers: readonly CallOutcome[]) =>
      outcomeOf((step: Step) => step.execute({ target, path: '/x' }), answers, {
        definition: processes[n] as (typeof processes)[number],
        limiter,
        coolDowns,
      })
    expect((await calling(0, 'erp', [answered(200)])).outcome.kind).toBe('completed')
    await calling(1, 'ledger', [answered(429)])
    expect(keys).toEqual(['/erp', '/erp'])
    const held = await calling(0, 'erp', [answered(200)])
    expect(held).toMatchObject({ calls: [], outcome: { kind: 'held', errorClass: 'target_held' } })
  })

  it('calls to a URL and calls to a target without limits cause no database statement', async () => {
    const { limiter, statements } = startSource()
    for (const request of [
      { target: 'open', path: '/x' } as const,
      { url: 'http://other.example' },
    ])
      for (const status of [200, 429])
        await outcomeOf((step: Step) => step.execute(request), [answered(status)], {
          definition,
          limiter,
        })
    expect(statements).toEqual([])
  })
})
