import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { outcomeOf } from '../../test-support/step-outcome.ts'
import { choicesAt } from '../decision/decisions.ts'
import { defineProcess } from './define-process.ts'
import { bindSettings } from './definition.ts'
import { secret } from './settings.ts'

const approval = z.object({ approved: z.boolean(), note: z.string().max(500).optional() })
const parked = { kind: 'parked', timeoutMs: null } as const

/** Returns the outcome of a run that enters the event of a process with this `ask`. */
async function entered(ask: (given: never) => unknown) {
  const definition = defineProcess('P').event('e', { data: approval, ask: ask as never })
  const { outcome } = await outcomeOf(definition.steps.get('e') as never, [], { definition })
  return outcome
}

// This file also tests types: `tsc` reports an unused `@ts-expect-error` if the line after it compiles.
describe('an event about which a person decides', () => {
  it('ask gets the run, and its title and facts are stored when the run gets to the event', async () => {
    const bills = defineProcess('P', { input: z.object({ n: z.number() }) }).event('e', {
      data: approval,
      ask(step) {
        expectTypeOf(step.initialData).toEqualTypeOf<{ n: number }>()
        // @ts-expect-error nothing can be called here
        void (() => step.execute('GET https://erp.example.com'))
        return {
          title: `Pay ${step.initialData.n}?`,
          facts: { Bill: 'B-1', Urgent: true, Due: null },
        }
      },
    })
    const { outcome } = await outcomeOf(bills.steps.get('e') as never, [], { definition: bills })
    const facts = { Bill: 'B-1', Urgent: true, Due: null }
    expect(outcome).toEqual({ ...parked, ask: { title: 'Pay 1?', facts } })
    // @ts-expect-error a title is needed
    defineProcess('P').event('e', { data: approval, ask: () => ({ facts: {} }) })
    const ask = () => ({ title: '?' })
    // @ts-expect-error there is no such member
    expect(() => bills.event('f', { data: approval, ask, choices: 'no' })).toThrow(TypeError)
    bills.step('s', (step) => {
      void (() => step.linkTo('e', { for: 'ada@example.com' }))
      // @ts-expect-error a person is needed
      void (() => step.linkTo('e', {}))
      return step.complete()
    })
  })

  it.each<[string, (given: never) => unknown, string]>([
    [
      'throws',
      () => {
        throw new Error('no bill')
      },
      'ask: Error: no bill',
    ],
    ['returns a promise', async () => ({ title: '?' }), 'and not a promise'],
    ['returns no title', () => ({ title: ' ' }), 'the title must be a text'],
    ['returns a list of facts', () => ({ title: '?', facts: [1] }), 'facts must be an object'],
    [
      'returns a fact that is an object',
      () => ({ title: '?', facts: { a: {} } }),
      'the fact a must be',
    ],
    [
      'returns a fact that JSON has not',
      () => ({ title: '?', facts: { a: NaN } }),
      'the fact a must be',
    ],
    [
      'returns too many facts',
      () => ({
        title: '?',
        facts: Object.fromEntries(Array.from({ length: 21 }, (_, n) => [n, n])),
      }),
      '20 are possible',
    ],
  ])('the run fails as step_threw if ask %s', async (_, ask, error) => {
    expect(await entered(ask)).toMatchObject({
      kind: 'failed',
      errorClass: 'step_threw',
      error: expect.stringContaining(error),
    })
  })

  it('texts that are too long are cut off, on one line without invisible characters', async () => {
    const outcome = await entered(() => ({
      title: `a\u202Eb\n${'x'.repeat(5_000)}`,
      facts: { ['n'.repeat(300)]: 'v'.repeat(5_000) },
    }))
    const { title, facts } = (
      outcome as unknown as { ask: { title: string; facts: Record<string, string> } }
    ).ask
    expect(title).toBe(`a b ${'x'.repeat(195)}…`)
    expect(Object.entries(facts)).toEqual([[`${'n'.repeat(99)}…`, `${'v'.repeat(999)}…`]])
  })

  it('secrets of the process are redacted', async () => {
    const open = defineProcess('P', { settings: { token: secret() }, input: z.string() }).event(
      'e',
      {
        data: approval,
        ask: (step) => ({ title: `Is it ${step.initialData}?` }),
      },
    )
    const definition = bindSettings(open, { token: secret().parse('a-long-secret') })
    const { outcome } = await outcomeOf(definition.steps.get('e') as never, [], {
      definition,
      initialData: 'a-long-secret',
    })
    expect(JSON.stringify(outcome)).not.toContain('a-long-secret')
    expect(outcome).toMatchObject({ kind: 'parked' })
  })

  it('the choices are those of the only boolean, or of the member that choices names', () => {
    const ask = () => ({ title: '?' })
    const choices = z.enum(['now', 'later'])
    const chain = defineProcess('P')
      .event('a', { data: approval, ask })
      .event('b', {
        data: z.object({ when: choices, more: z.number().optional() }),
        ask,
        choices: 'when',
      })
      .event('c', {
        data: z.object({ is: z.boolean(), was: z.boolean().default(true) }),
        ask,
        choices: 'is',
      })
      .event('d')
    expect(choicesAt(chain, 'a')).toEqual({
      Member: 'approved',
      Choices: [true, false],
      HasNote: true,
    })
    expect(choicesAt(chain, 'b')).toEqual({
      Member: 'when',
      Choices: ['now', 'later'],
      HasNote: false,
    })
    expect(choicesAt(chain, 'c')).toMatchObject({ Member: 'is' })
    expect(choicesAt(chain, 'd')).toBeUndefined()
  })

  it.each<[string, object, string]>([
    ['without data', {}, 'needs data: an object'],
    ['with data that is no object', { data: z.boolean() }, 'needs data: an object'],
    ['without a boolean', { data: z.object({ n: z.number() }) }, 'must name a boolean or an enum'],
    [
      'with two booleans',
      { data: z.object({ a: z.boolean(), b: z.boolean() }) },
      'must name a boolean or an enum',
    ],
    [
      'with choices that are no enum',
      { data: z.object({ a: z.boolean(), n: z.string() }), choices: 'n' },
      'must name a boolean or an enum',
    ],
    [
      'with choices that do not exist',
      { data: approval, choices: 'no' },
      'must name a boolean or an enum',
    ],
    [
      'with an optional choice',
      { data: z.object({ a: z.boolean().optional() }), choices: 'a' },
      'must name a boolean or an enum',
    ],
    [
      'with another required member',
      { data: z.object({ a: z.boolean(), n: z.number() }) },
      'n must be optional',
    ],
    [
      'with a note that is no text',
      { data: z.object({ a: z.boolean(), note: z.number().optional() }) },
      'note must accept a text',
    ],
    [
      'with a long choice',
      { data: z.object({ a: z.enum(['x'.repeat(101)]) }), choices: 'a' },
      'at most 100 characters',
    ],
    [
      'with many choices',
      {
        data: z.object({ a: z.enum(Array.from({ length: 21 }, (_, n) => `c${n}`)) }),
        choices: 'a',
      },
      'at most 20 values',
    ],
    ['that is no function', { data: approval, ask: 1 }, 'ask of event e of P must be a function'],
    [
      'that is missing',
      { data: approval, choices: 'approved', ask: undefined },
      'has no effect without ask',
    ],
  ])('ask %s is rejected', (_, options, message) => {
    const given = { ask: () => ({ title: '?' }), ...options }
    expect(() => defineProcess('P').event('e', given as never)).toThrow(message)
  })
})
