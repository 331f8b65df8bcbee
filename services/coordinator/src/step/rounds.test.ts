import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { answered, outcomeOf } from '../../test-support/step-outcome.ts'
import type { Json } from '../run/json-normalization.ts'
import { processOf } from '../../test-support/process-of.ts'
import { bindSettings } from './definition.ts'
import { secret } from './settings.ts'
import {
  type AnyStep,
  type NamedSteps,
  type ProcessSettings,
  type Step,
  withOptions,
} from './step.ts'

const Page = z.object({ page: z.number() })
type Paged = Step<Json, null, NamedSteps, ProcessSettings, string, typeof Page>
const paged = (run: (step: Paged) => unknown, options: Partial<AnyStep> = {}): AnyStep =>
  withOptions(run, { state: Page, ...options })
const inRound = (number: number, state: Json) => ({ round: { number, state } })

describe('a step that calls repeat', () => {
  it('the round ends with the new state, and what the step does afterwards has no effect', async () => {
    const { outcome, calls } = await outcomeOf(
      paged(async (step) => {
        expect([step.round, step.state]).toEqual([0, undefined])
        await step.execute({ url: 'http://x/' })
        try {
          step.repeat({ page: 2 }, { afterMs: 500 })
        } catch {
          step.complete('too late')
        }
      }),
      [answered(200, '{"next":2}')],
    )
    expect(outcome).toEqual({
      kind: 'repeated',
      response: { status: 200, body: '{"next":2}' },
      round: { number: 1, state: { page: 2 } },
      delayMs: 500,
    })
    expect(calls[0]?.headers?.['idempotency-key'] ?? calls[0]?.headers?.['Idempotency-Key']).toBe(
      'P/a%2Fb/2/second',
    )
  })

  it('a later round gets the state, and its calls have the key of the round', async () => {
    const { outcome } = await outcomeOf(
      paged((step) => {
        expect(step).toMatchObject({
          round: 3,
          state: { page: 4 },
          idempotencyKey: 'P/a%2Fb/2/second/round-3',
        })
        return step.repeat({ page: 5 })
      }),
      [],
      inRound(3, { page: 4 }),
    )
    expect(outcome).toMatchObject({ round: { number: 4, state: { page: 5 } }, delayMs: 0 })
  })

  it('a fetch whose effect is unknown leaves no doubt if the step then decides to repeat', async () => {
    const { outcome } = await outcomeOf(
      paged(async (step) => {
        await step.fetch({ url: 'http://x/', method: 'POST' })
        step.repeat({ page: 1 })
      }),
      [answered(500)],
    )
    expect(outcome).toMatchObject({ kind: 'repeated' })
    expect(outcome).not.toHaveProperty('isInDoubt')
  })

  it.each<[string, unknown, string]>([
    ['does not match the schema', { page: 'x' }, 'state_invalid'],
    ['has more than 64 KB', { page: 1, all: 'x'.repeat(65_536) }, 'state_too_large'],
    [
      'is too deep',
      { page: 1, deep: JSON.parse('['.repeat(200) + ']'.repeat(200)) as Json },
      'state_invalid',
    ],
  ])('the run fails if the state %s', async (_, state, errorClass) => {
    const { outcome } = await outcomeOf(paged((step) => step.repeat(state as { page: number })))
    expect(outcome).toMatchObject({ kind: 'failed', errorClass })
  })

  it('the run fails if the stored state does not match the schema any more, and stays in doubt', async () => {
    const change = { ...inRound(1, { page: 'x' }), isInDoubt: true }
    const { outcome } = await outcomeOf(
      paged((step) => step.complete()),
      [],
      change,
    )
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'state_invalid', isInDoubt: true })
  })

  it('the run fails if the step calls repeat in the last of its rounds', async () => {
    const handler = paged((step) => step.repeat({ page: 1 }), { maxRounds: 3 })
    const third = await outcomeOf(handler, [], inRound(2, { page: 1 }))
    expect(third.outcome).toMatchObject({ kind: 'failed', errorClass: 'rounds_used_up' })
    const second = await outcomeOf(handler, [], inRound(1, { page: 1 }))
    expect(second.outcome).toMatchObject({ kind: 'repeated' })
  })

  it('the run fails if a step without the option state calls repeat', async () => {
    const { outcome } = await outcomeOf((step: Paged) => step.repeat({ page: 1 }))
    expect(outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_threw',
      error: 'TypeError: a step needs the option state to call repeat',
    })
  })

  it('confirm of a round in doubt gets its state and its key, and can begin the next round', async () => {
    const seen: unknown[] = []
    const handler = paged(() => expect.unreachable(), {
      confirm: (step: Paged) => {
        seen.push(step.state, step.idempotencyKey)
        return step.repeat({ page: 5 })
      },
    })
    const { outcome } = await outcomeOf(handler, [], {
      ...inRound(1, { page: 4 }),
      isInDoubt: true,
    })
    expect(seen).toEqual([{ page: 4 }, 'P/a%2Fb/2/second/round-1'])
    expect(outcome).toMatchObject({ kind: 'repeated', round: { number: 2 } })
    expect(outcome).not.toHaveProperty('isInDoubt')
  })

  it('secrets of the process are redacted in state and progress', async () => {
    const definition = bindSettings(
      processOf('P', {
        settings: { key: secret() },
        steps: { first: () => null, second: () => null },
      }),
      { key: new Secret('canary-key-0123456789') },
    )
    const reports: Json[] = []
    const handler = withOptions(
      (step: Step<Json, null, NamedSteps, ProcessSettings, string, z.ZodString>) => {
        step.report({ done: 1, of: 2, note: 'canary-key-0123456789' })
        step.repeat('canary-key-0123456789')
      },
      { state: z.string() },
    )
    const onReport = (report: Json) => void reports.push(report)
    const { outcome } = await outcomeOf(handler, [], { definition, onReport })
    expect(JSON.stringify([outcome, reports])).not.toContain('canary')
    expect(reports).toMatchObject([{ Done: 1, Of: 2, Note: '[secret]' }])
  })
})

describe('a step that reports progress', () => {
  it('progress is stored with its time, and its note is cut off after 200 characters', async () => {
    const reports: Json[] = []
    await outcomeOf(
      (step: Step) => {
        step.report({ done: 0.5, of: 1 })
        step.report({ done: 1, of: 1, note: `${'x'.repeat(199)}yz` })
        return step.complete()
      },
      [],
      { onReport: (report) => void reports.push(report) },
    )
    const At = '1970-01-01T00:00:00.000Z'
    expect(reports).toEqual([
      { Done: 0.5, Of: 1, Note: null, At },
      { Done: 1, Of: 1, Note: `${'x'.repeat(199)}y`, At },
    ])
  })

  it('a report without numbers throws an error in the step', async () => {
    const { outcome } = await outcomeOf((step: Step) => step.report({ done: Number.NaN, of: 1 }))
    expect(outcome).toMatchObject({ errorClass: 'step_threw' })
  })
})

describe('the condition of a step', () => {
  const conditional = (when: unknown): AnyStep =>
    withOptions((step: Step) => step.complete('ran'), { when })

  it('a step runs if its condition returns true, and is skipped if it returns false', async () => {
    const seen: unknown[] = []
    const when = (given: Step) => {
      seen.push(given.previous, given.initialData, given.name, 'execute' in given)
      return given.item('first').outcome === 'skipped'
    }
    const { outcome } = await outcomeOf(conditional(when))
    expect(outcome).toEqual({ kind: 'skipped' })
    expect(seen).toEqual([
      expect.objectContaining({ name: 'first', data: { x: 1 }, outcome: 'completed' }),
      { n: 1 },
      'second',
      false,
    ])
    const { outcome: ran } = await outcomeOf(conditional(() => true))
    expect(ran).toMatchObject({ kind: 'completed', data: 'ran' })
  })

  it.each<[string, unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('no')
      },
      'when: Error: no',
    ],
    [
      'returns a promise',
      async () => Promise.reject(new Error('no')),
      'when must return true or false, and not a promise',
    ],
    ['returns another value', () => 1, 'when must return true or false, and not a promise'],
    [
      'reads a step that has not run',
      (given: Step) => given.item('third').data,
      'when: TypeError: this run has no finished item third: its finished items are first',
    ],
  ])('the run fails as step_threw if the condition %s', async (_, when, error) => {
    const { outcome } = await outcomeOf(conditional(when))
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'step_threw', error })
  })

  it('the condition is evaluated in each attempt, even in doubt, because a worker may have been lost before it recorded the result', async () => {
    for (const later of [{ attempt: 2 }, { isInDoubt: true }]) {
      const { outcome } = await outcomeOf(
        conditional(() => false),
        [],
        later,
      )
      expect(outcome).toEqual({ kind: 'skipped' })
    }
  })

  it('a step that has called repeat is not skipped any more', async () => {
    const handler = withOptions(
      conditional(() => false),
      { state: Page },
    )
    const { outcome } = await outcomeOf(handler, [], inRound(1, { page: 1 }))
    expect(outcome).toMatchObject({ kind: 'completed' })
  })
})
