import { describe, expect, it } from 'vitest'
import { claimedRun } from '../../test-support/claimed-run.ts'
import type { ClaimedRun } from './run.ts'
import { isOver } from './status.ts'
import { advance, type StepOutcome } from './progress.ts'
import { defaultRetryPolicy } from './retry-policy.ts'

const steps = ['order', 'report', 'csv']
const options = { steps, policy: defaultRetryPolicy, random: 0.5 }
const run = (change: Partial<ClaimedRun> = {}): ClaimedRun =>
  claimedRun({ StepName: 'order', ...change })
const completed: StepOutcome = { kind: 'completed', response: null, data: null, endsRun: false }
const retry: StepOutcome = {
  kind: 'retry',
  errorClass: 'http_503',
  error: 'busy',
  response: null,
  retryAfterMs: null,
}
const failed: StepOutcome = { kind: 'failed', errorClass: 'http_400', error: 'no', response: null }
const waiting: StepOutcome = { kind: 'waiting', credential: 'ACC-1', error: 'faulted' }
const released: StepOutcome = { kind: 'released' }
const told429: StepOutcome = {
  kind: 'held',
  errorClass: 'http_429',
  error: 'slow down',
  response: { status: 429, body: '' },
  delayMs: 3_000,
}

describe('the transition of a run', () => {
  it.each([
    ['order', 'Running', 'report'],
    ['report', 'Running', 'csv'],
    ['csv', 'Completed', 'csv'],
  ])(
    'after the step %s has completed, the run has the status %s and the StepName %s',
    (step, status, next) => {
      const transition = advance(run({ StepName: step, Attempt: 3 }), completed, options)
      expect(transition).toMatchObject({ status, stepName: next, item: { status: 'Completed' } })
      if (status === 'Running') expect(transition.attempt).toBe(0)
    },
  )

  it("a step that calls setStatus('Completed') completes the run, even if the process has further steps", () => {
    expect(advance(run(), { ...completed, endsRun: true }, options)).toMatchObject({
      status: 'Completed',
      stepName: 'order',
    })
  })

  it('if a changed definition has finished steps after the current step, the run skips these steps', () => {
    const next = (finished: string[]) => advance(run(), completed, { ...options, finished })
    expect(next(['report'])).toMatchObject({ status: 'Running', stepName: 'csv' })
    expect(next(['report', 'csv'])).toMatchObject({ status: 'Completed', stepName: 'order' })
  })

  it('a run fails instead of starting again if its process no longer has the due step', () => {
    const transition = advance(run({ StepName: 'gone' }), failed, options)
    expect(transition.status).toBe('Failed')
  })

  it('the delay before a retry is random (full jitter); its maximum doubles with each attempt up to a cap', () => {
    const delays = Array.from(
      { length: 9 },
      (_, n) => advance(run({ Attempt: n + 1 }), retry, { ...options, random: 0.999 }).delayMs,
    )
    expect(delays).toEqual([999, 1_998, 3_996, 7_992, 15_984, 31_968, 63_936, 127_872, 255_744])
    expect(advance(run(), retry, { ...options, random: 0 }).delayMs).toBe(0)
  })

  it('the Retry-After of a response replaces the back-off delay before a retry, up to a day', () => {
    const after = (retryAfterMs: number) =>
      advance(run(), { ...retry, retryAfterMs }, options).delayMs
    expect([after(0), after(7_000), after(9e12)]).toEqual([0, 7_000, 86_400_000])
  })

  it('a run fails if the last allowed attempt (the tenth) of its step ends with a retryable error', () => {
    expect(advance(run({ Attempt: 9 }), retry, options).status).toBe('Retrying')
    expect(advance(run({ Attempt: 10 }), retry, options)).toMatchObject({
      status: 'Failed',
      errorClass: 'http_503',
      item: { status: 'Failed' },
    })
  })

  it('an attempt is not counted if its step waits for a credential, calls waitFor(), or is stopped before it sends a call', () => {
    expect(advance(run({ Attempt: 3 }), waiting, options)).toMatchObject({
      status: 'Waiting',
      attempt: 2,
      waitingFor: 'ACC-1',
    })
    expect(advance(run({ Attempt: 3 }), released, options)).toMatchObject({
      status: 'Retrying',
      attempt: 2,
      item: null,
    })
    expect(advance(run({ Attempt: 1 }), released, options).status).toBe('Queued')
    expect(advance(run({ Attempt: 1, StepName: 'csv' }), released, options).status).toBe('Running')
    expect(advance(run({ Attempt: 3 }), { kind: 'later', delayMs: 5 }, options)).toMatchObject({
      status: 'Retrying',
      attempt: 2,
      delayMs: 5,
      lastError: 'the step called waitFor and starts again later',
      errorClass: 'step_waits',
      item: null,
    })
  })

  it('an attempt that ends because of a cool-down is not counted, and is stored only if its own call got a 429', () => {
    expect(advance(run({ Attempt: 10 }), told429, options)).toMatchObject({
      status: 'Retrying',
      attempt: 9,
      delayMs: 3_000,
      errorClass: 'http_429',
      item: { status: 'Retrying', response: { status: 429 } },
    })
    expect(advance(run(), { ...told429, response: null }, options)).toMatchObject({
      status: 'Retrying',
      attempt: 0,
      lastError: 'slow down',
      item: null,
    })
  })

  it('an attempt that is not counted is still stored if its call was sent', () => {
    const outcome: StepOutcome = { kind: 'released', noResponse: 'no response', isInDoubt: true }
    expect(advance(run(), outcome, options)).toMatchObject({
      status: 'Queued',
      attempt: 0,
      errorClass: 'no_answer',
      isInDoubt: true,
      item: { error: 'no response' },
    })
  })

  it('a run is in doubt if the outcome of its step is in doubt, until the step has completed', () => {
    for (const outcome of [retry, failed, waiting, told429, released]) {
      expect(advance(run(), { ...outcome, isInDoubt: true }, options).isInDoubt).toBe(true)
      expect(advance(run(), outcome, options).isInDoubt).toBe(false)
    }
    expect(advance(run(), completed, options).isInDoubt).toBe(false)
  })

  it('in 20,000 random histories, no run returns to an earlier step, skips a step or exceeds maxAttempts', () => {
    let seed = 42
    const random = (): number => {
      seed = (seed * 1_664_525 + 1_013_904_223) % 4_294_967_296
      return seed / 4_294_967_296
    }
    const outcomes = [completed, retry, failed, waiting, told429, released]
    for (let history = 0; history < 20_000; history += 1) {
      let current = run({ Status: 'Queued', Attempt: 0 })
      let charged = 0
      for (let n = 0; n < 30 && !isOver(current.Status); n += 1) {
        const claimed = { ...current, Attempt: current.Attempt + 1 }
        const weight = random()
        const outcome = weight < 0.5 ? completed : outcomes[Math.floor(random() * outcomes.length)]
        if (outcome === undefined) throw new Error('no outcome')
        const next = advance(claimed, outcome, { ...options, random: random() })
        const moved = steps.indexOf(next.stepName) - steps.indexOf(claimed.StepName)
        charged = moved === 1 ? 0 : charged + (outcome === retry ? 1 : 0)
        expect(moved === 0 || (moved === 1 && outcome === completed)).toBe(true)
        expect(next.attempt).toBeLessThanOrEqual(defaultRetryPolicy.maxAttempts)
        expect(next.delayMs).toBeGreaterThanOrEqual(0)
        if (!isOver(next.status)) expect(next.attempt).toBe(charged)
        if (next.status === 'Completed') expect(next.stepName).toBe('csv')
        current = {
          ...current,
          Status: next.status,
          StepName: next.stepName,
          Attempt: next.attempt,
        }
      }
    }
  })
})
