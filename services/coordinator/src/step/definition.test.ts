import { Secret } from '@integration-host/shared/secrets/secret'
import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { defineProcess } from './define-process.ts'
import { bindSettings, limitsOf, type ProcessDefinition } from './definition.ts'
import { secret } from './settings.ts'
import type { Json } from '../run/json-normalization.ts'
import {
  defineStep,
  type ItemOutcome,
  type NamedSteps,
  type ProcessSettings,
  type Step,
  type StepItem,
} from './step.ts'

const key = 'erp-key-0123456789'

// This file also tests types: `tsc` reports an unused `@ts-expect-error` if the line after it compiles.
describe('a process definition that is built as a chain of steps', () => {
  const Sale = z.object({
    customer: z.string(),
    amount: z.coerce.number(),
    note: z.string().optional(),
  })

  const sales = defineProcess('Sale', {
    input: Sale,
    settings: { erpUrl: z.url(), erpKey: secret(), batch: z.coerce.number().default(10) },
    targets: ({ erpUrl, erpKey }) => {
      expectTypeOf(erpUrl).toEqualTypeOf<string>()
      expectTypeOf(erpKey).toEqualTypeOf<Secret>()
      return { erp: { url: erpUrl, auth: { bearer: erpKey } } }
    },
  })
    .step('customer', (step) => {
      expectTypeOf(step.initialData).toEqualTypeOf<z.output<typeof Sale>>()
      expectTypeOf(step.previous).toEqualTypeOf<null>()
      expectTypeOf(step.settings.batch).toEqualTypeOf<number>()
      expectTypeOf(step.settings.dataDir).toEqualTypeOf<string>()
      // @ts-expect-error a step cannot read a secret
      void step.settings.erpKey
      // @ts-expect-error the process has no such target
      void (() => step.execute({ target: 'crm', path: '/customers' }))
      // @ts-expect-error no step ran before this one
      void (() => step.item('customer'))
      return step.execute(
        {
          target: 'erp',
          path: '/customers',
          method: 'POST',
          body: { note: step.initialData.note },
        },
        { parse: () => ({ id: 7 }) },
      )
    })
    .step(
      'invoice',
      (step) => {
        expectTypeOf(step.previous.data).toEqualTypeOf<{ id: number }>()
        return step.complete(String(step.previous.data.id))
      },
      {
        confirm: async (step) => {
          expectTypeOf(step.previous.data).toEqualTypeOf<{ id: number }>()
          // @ts-expect-error confirm may query the target but not call execute
          void step.execute
          const found = await step.find({ target: 'erp', path: '/invoices' }, { parse: () => '7' })
          return found === null ? 'not_done' : step.complete(found.data)
        },
        retry: { maxAttempts: 3 },
        timeoutMs: 5_000,
      },
    )
    .step('notice', (step) => {
      expectTypeOf(step.previous.data).toEqualTypeOf<string>()
      expectTypeOf(step.item('customer')).toEqualTypeOf<StepItem<{ id: number }>>()
      // @ts-expect-error there is no such step
      void (() => step.item('nope'))
      // @ts-expect-error the step has not run yet
      void (() => step.item('notice'))
      return step.setStatus('Completed')
    })

  it('an undo is checked against the data of its own step and of the earlier ones, and must end like a step', () => {
    const booked = defineProcess('P', { targets: { bank: { url: 'https://bank.test' } } })
      .step('book', (step) => step.complete({ id: step.attempt }), {
        undo: (step) => {
          expectTypeOf(step.item('book').data).toEqualTypeOf<{ id: number }>()
          // @ts-expect-error no step ran before this one
          void (() => step.previous.data)
          // @ts-expect-error an undo cannot complete the run
          void step.setStatus
          // @ts-expect-error an undo cannot repeat
          void step.repeat
          return step.execute({ target: 'bank', path: '/unbook' })
        },
      })
      .step('pay', (step) => step.complete('p'), {
        undo: {
          run: (step) => step.complete(step.previous.data.id + step.item('pay').data.length),
          async confirm(step) {
            // @ts-expect-error confirm may query the target but not call execute
            void step.execute
            return (await step.find({ target: 'bank', path: '/' })) === null
              ? 'not_done'
              : step.complete()
          },
        },
      })
    expect(booked.undoable).toEqual(['book', 'pay'])
    // @ts-expect-error an undo must return an outcome
    void (() => booked.step('last', (step) => step.complete(), { undo: () => {} }))
    void (() =>
      booked.step('last', (step) => step.complete(), {
        // @ts-expect-error the process has no such target
        undo: (step) => step.execute({ target: 'y', path: '/' }),
      }))
    // @ts-expect-error `undo` of fail is true or false
    void (() => booked.step('x', (step) => step.fail('no', { undo: 'yes' })))
  })

  it('a process definition has the steps in the order of the chain, each with its options', () => {
    expect(sales.stepNames).toEqual(['customer', 'invoice', 'notice'])
    expect(sales.steps.get('invoice')?.confirm).toBeTypeOf('function')
    expect(limitsOf(sales, 'invoice')).toEqual({
      retry: { ...limitsOf(sales, 'customer').retry, maxAttempts: 3 },
      timeoutMs: 5_000,
    })
    expectTypeOf(sales).toExtend<ProcessDefinition>()
  })

  it('in a chain, a step function compiles only if it comes after the steps whose data it reads', () => {
    const first = (step: Step<{ customer: string }>) =>
      step.complete({ id: step.initialData.customer })
    const second = (step: Step<{ customer: string }, typeof first>) =>
      step.complete(step.previous.data.id.length)
    const third = (step: Step<{ customer: string }, typeof second, { first: typeof first }>) =>
      step.complete(step.item('first').data.id)
    const start = defineProcess('P', { input: z.object({ customer: z.string() }) })
    const whole = start.step('first', first).step('second', second).step('third', third)
    expect(whole.stepNames).toEqual(['first', 'second', 'third'])
    // @ts-expect-error `second` reads the data of `first`
    start.step('second', second)
    // @ts-expect-error `third` reads the data of `second`
    start.step('first', first).step('third', third)
    // @ts-expect-error the input of the process has no `customer`
    defineProcess('P', { input: z.object({ name: z.string() }) }).step('first', first)
    // @ts-expect-error confirm returns data of a different type than the step
    start.step('first', first, { confirm: async (step) => step.complete(66) })
  })

  it('a step compiles only if each of its branches returns an outcome', () => {
    const start = defineProcess('P')
    const url = 'http://x/'
    start.step('all', async (step) => {
      if (step.attempt > 4) return step.fail('x')
      if (step.attempt > 3) return step.waitFor(1_000)
      if (step.attempt > 2) return step.setStatus('Completed')
      return step.attempt > 1 ? step.complete(1) : await step.execute({ url })
    })
    start.step('fails', (step) => step.fail('x'))
    // @ts-expect-error the step returns nothing
    start.step('a', () => {})
    // @ts-expect-error a call of another service is no outcome
    start.step('a', async () => await fetch(url))
    // @ts-expect-error a response that the step has not evaluated is no outcome
    start.step('a', (step) => step.fetch({ url }))
    // @ts-expect-error the outcome is not returned
    start.step('a', async (step) => {
      await step.execute({ url })
    })
    // @ts-expect-error one branch returns nothing
    start.step('a', (step) => {
      if (step.attempt > 1) return step.complete()
    })
    // @ts-expect-error an object with data is no outcome
    start.step('a', () => ({ data: 1 }))
    start.step('a', (step) => step.complete(), {
      // @ts-expect-error the response to a query is no outcome
      confirm: async (step) => (await step.find({ url })) ?? 'not_done',
    })
    // @ts-expect-error the compiler names the wrong option
    expect(() => start.step('a', (step) => step.complete(), { retries: 3 })).toThrow('retries')
    // @ts-expect-error the compiler names the wrong option
    expect(() => defineProcess('P', { retries: 3 })).toThrow('retries')
  })

  it('the data of a step that may be skipped is null in later steps and conditions', () => {
    const process = defineProcess('P', { input: z.object({ amount: z.number() }) })
      .step('draft', (step) => step.complete({ id: step.initialData.amount }))
      .step('check', (step) => step.complete(step.previous.data.id > 10), {
        when: (entered) => {
          expectTypeOf(entered.initialData).toEqualTypeOf<{ amount: number }>()
          expectTypeOf(entered.previous.data).toEqualTypeOf<{ id: number }>()
          // @ts-expect-error a condition makes no calls
          void (() => entered.execute({ url: 'http://x/' }))
          // @ts-expect-error the step has not run yet
          void (() => entered.item('check'))
          return entered.initialData.amount > 5
        },
      })
      .step(
        'pay',
        (step) => {
          expectTypeOf(step.previous.data).toEqualTypeOf<boolean | null>()
          expectTypeOf(step.item('check').data).toEqualTypeOf<boolean | null>()
          expectTypeOf(step.item('draft').data).toEqualTypeOf<{ id: number }>()
          expectTypeOf(step.previous.outcome).toEqualTypeOf<ItemOutcome>()
          return step.complete()
        },
        { when: ({ previous }) => previous.outcome === 'completed' },
      )
    expect(process.steps.get('check')?.when).toBeTypeOf('function')
    defineProcess('P')
      .event('approved', { data: z.boolean(), when: ({ initialData }) => initialData !== null })
      .step('next', (step) => {
        expectTypeOf(step.previous.data).toEqualTypeOf<boolean | null>()
        return step.complete()
      })
    const start = defineProcess('P')
    // @ts-expect-error a condition returns true or false
    start.step('a', (step) => step.complete(), { when: async () => true })
    // @ts-expect-error a condition returns true or false
    start.step('a', (step) => step.complete(), { when: () => 'yes' })
  })

  it('the state of a step that repeats has the type of its schema', () => {
    const Page = z.object({ page: z.coerce.number(), from: z.string().default('a') })
    const process = defineProcess('P')
      .step(
        'read',
        (step) => {
          expectTypeOf(step.state).toEqualTypeOf<z.output<typeof Page> | undefined>()
          // @ts-expect-error the state has another type
          if (step.attempt > 10) step.repeat({ pages: 1 })
          if (step.round < 2) return step.repeat({ page: 1 }, { afterMs: 1_000 })
          step.report({ done: 1, of: 2, note: 'x' })
          return step.complete(7)
        },
        {
          state: Page,
          confirm: async (step) => {
            expectTypeOf(step.state).toEqualTypeOf<z.output<typeof Page> | undefined>()
            return step.state === undefined ? 'not_done' : step.complete(7)
          },
          when: ({ initialData }) => initialData !== null,
        },
      )
      .step('next', (step) => {
        expectTypeOf(step.previous.data).toEqualTypeOf<7 | null>()
        expectTypeOf(step.state).toEqualTypeOf<undefined>()
        // @ts-expect-error a step without the option state does not repeat
        return step.attempt > 10 ? step.repeat({ page: 1 }) : step.complete()
      })
    expect(process.steps.get('read')?.state).toBe(Page)
    const own = (step: Step<Json, null, NamedSteps, ProcessSettings, string, typeof Page>) =>
      step.state === undefined ? step.repeat({ page: 2 }) : step.complete(step.state.page)
    defineProcess('P').step('own', own, { state: Page })
  })

  it.each([
    [{ when: true }, 'when of step a of P must be a function'],
    [{ undo: 'no' }, 'undo of step a of P must be a function, or { run, confirm }'],
    [{ undo: { confirm() {} } }, 'undo of step a of P must be a function, or { run, confirm }'],
    [{ undo: { run() {}, other: 1 } }, 'undo of step a of P has no option other'],
    [{ state: {} }, 'state of step a of P must be a schema of zod 4'],
    [{ maxRounds: 3 }, 'maxRounds of step a of P has no effect without the option state'],
    [{ state: z.number(), maxRounds: 0 }, 'must be a whole number from 1 to 1000000'],
    [{ state: z.number(), maxRounds: 1.5 }, 'must be a whole number from 1 to 1000000'],
  ])('a definition is rejected whose step has the options %j', (options, message) => {
    const define = () => defineProcess('P').step('a', (step) => step.complete(), options as object)
    expect(define).toThrow(message)
  })

  it('a step may return and send objects with undefined members, which JSON omits', () => {
    const Bill = z.object({
      Id: z.string(),
      BillEmail: z.object({ Address: z.string() }).optional(),
    })
    const process = defineProcess('P')
      .step('read', (step) =>
        step.execute(
          { url: 'http://x/', body: { email: undefined as string | undefined } },
          { parse: (body) => Bill.parse(body) },
        ),
      )
      .step('mail', (step) => step.complete(step.previous.data.BillEmail?.Address ?? null))
    expect(process.stepNames).toEqual(['read', 'mail'])
  })

  it('two different steps can be added to the same definition, because adding a step creates a new definition', () => {
    const base = defineProcess('P').step('a', (step) => step.complete())
    expect(base.step('b', (step) => step.complete()).stepNames).toEqual(['a', 'b'])
    expect(base.step('c', (step) => step.complete()).stepNames).toEqual(['a', 'c'])
    expect(base.stepNames).toEqual(['a'])
  })

  it('defineProcess() without a step does not return a process definition', () => {
    const start = defineProcess('P')
    expectTypeOf(start).not.toExtend<ProcessDefinition>()
    expect(start).not.toHaveProperty('stepNames')
  })

  it('adding a step under a name that the chain already has does not compile, and throws at run time', () => {
    const base = defineProcess('P').step('a', (step) => step.complete())
    // @ts-expect-error the chain already has a step `a`
    expect(() => base.step('a', (step) => step.complete())).toThrow('process P has two steps a')
  })

  it('a step keeps the options of defineStep() when it is added to a chain with other options', () => {
    const charge = defineStep((step: Step) => step.complete('done'), {
      confirm: async (step) => step.complete('done'),
      timeoutMs: 7,
    })
    const process = defineProcess('P').step('charge', charge, { retry: { maxAttempts: 1 } })
    expect(process.steps.get('charge')?.confirm).toBeTypeOf('function')
    expect(limitsOf(process, 'charge')).toMatchObject({ retry: { maxAttempts: 1 }, timeoutMs: 7 })
    expect(charge).not.toHaveProperty('retry')
  })
})

describe('a process definition that cannot run', () => {
  // A JavaScript process file can call `defineProcess` with arguments that TypeScript would reject.
  const define = defineProcess as unknown as (name: unknown, options?: unknown) => Chain
  interface Chain {
    step(...args: unknown[]): Chain
  }

  it.each(['__proto__', '', 'a b', '1st', 'a.b', 'x'.repeat(65), 'é', 7, null])(
    'defineProcess() rejects the name %j for the process and for a step',
    (name) => {
      expect(() => define(name)).toThrow(`${String(name)} cannot name a process`)
      expect(() => define('P').step(name, () => null)).toThrow(
        `${String(name)} cannot name a step of P`,
      )
    },
  )

  it('a process definition is rejected if it has more than 100 steps', () => {
    const steps = Array.from({ length: 101 }, (_, n) => `s${n}`)
    const addAll = () =>
      steps.reduce((process, step) => process.step(step, () => null), define('P'))
    expect(addAll).toThrow('process P has 101 steps; 100 are possible')
  })

  it.each([
    ['process P has no option priority', { priority: 4 }],
    // The first release had the steps in this option.
    ['process P has no option steps', { steps: { a: () => null } }],
    ['process P has no option deadline', { deadline: '2 hours' }],
    ['deadlineSeconds of P must be more than 0, at most 31622400', { deadlineSeconds: 0 }],
    ['deadlineSeconds of P must be more than 0', { deadlineSeconds: '60' }],
    ['deadlineSeconds of P must be more than 0', { deadlineSeconds: 31_622_401 }],
    ["onFailure of P must be 'fail' or 'undo'", { onFailure: 'retry' }],
    ['version of P must be a positive integer, or a text', { version: 0 }],
    ['version of P must be a positive integer', { version: 1.5 }],
    ['version of P must be a positive integer', { version: '' }],
    ['version of P must be a positive integer', { version: '1 beta' }],
    ['version of P must be a positive integer', { version: 'x'.repeat(33) }],
    ['retry of process P has no option tries', { retry: { tries: 3 } }],
    [
      'retry.maxAttempts of process P must be a whole number, 1 or more',
      { retry: { maxAttempts: 0 } },
    ],
    ['retry.baseMs of process P must be a number', { retry: { baseMs: Number.NaN } }],
    ['input of P must be a schema of zod 4', { input: { customer: 'string' } }],
    ['setting key of P must be a schema of zod 4', { settings: { key: 'text' } }],
    ['cannot name a setting of P', { settings: { 'erp-url': z.string() } }],
    [
      'dataDir cannot name a setting of P: the installation has it',
      { settings: { dataDir: z.string() } },
    ],
    ['stepTimeoutSeconds of P', { stepTimeoutSeconds: 0 }],
    ...[0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, '5', null].map(
      (concurrency): [string, object] => [
        'concurrency of P must be a whole number, 1 or more',
        { concurrency },
      ],
    ),
    [
      'concurrencyKey of P must be a function of the input',
      { concurrency: 1, concurrencyKey: 'customer' },
    ],
    ['concurrencyKey of P has no effect without concurrency', { concurrencyKey: () => 'a' }],
    ['concurrency of P must have total, perKey or both', { concurrency: {} }],
    ['concurrency of P has no option perkey', { concurrency: { total: 5, perkey: 2 } }],
    ['concurrency.total of P must be a whole number, 1 or more', { concurrency: { total: 0 } }],
    [
      'concurrency.perKey of P must be a whole number, 1 or more',
      { concurrency: { total: 5, perKey: '2' } },
    ],
    ['retention.failedDays of P', { retention: { failedDays: -1 } }],
  ])('a process definition is rejected with the reason: %s', (reason, options) => {
    expect(() => define('P', options).step('a', () => null)).toThrow(reason)
  })

  it('a version is stored as text, so an integer and a text with the same digits are the same version', () => {
    const versionOf = (options: { version?: string | number }) =>
      defineProcess('P', options).step('a', (step) => step.complete()).version
    expect(versionOf({ version: 3 })).toBe('3')
    expect(versionOf({ version: '3' })).toBe('3')
    expect(versionOf({ version: '2026-11.1+b_2' })).toBe('2026-11.1+b_2')
    expect(versionOf({})).toBeNull()
  })

  it.each([
    ['step a of P is not a function', 'text', undefined],
    ['step a of P has no option timeout', () => null, { timeout: 5 }],
    ['timeoutMs of step a of P must be more than 0', () => null, { timeoutMs: 0 }],
    ['retry of step a of P has no option max', () => null, { retry: { max: 5 } }],
  ])('a process definition is rejected if a step is not valid: %s', (reason, run, options) => {
    expect(() => define('P').step('a', run, options)).toThrow(reason)
  })

  it('a process with inline dispatch is rejected if its steps together may take longer than RabbitMQ allows for a delivery', () => {
    const process = defineProcess('P', { dispatch: 'inline', stepTimeoutSeconds: 800 }).step(
      'a',
      (step) => step.complete(),
    )
    expect(() => process.step('b', (step) => step.complete())).toThrow(
      'all steps together may take 1500 seconds',
    )
    expect(
      process.step('b', (step) => step.complete(), { timeoutMs: 700_000 }).stepNames,
    ).toHaveLength(2)
  })
})

describe('the concurrency limit of a process', () => {
  it('a process has no concurrency limit by default; it may limit all its runs together, or the runs of each key', () => {
    const step = (given: Pick<Step, 'complete'>) => given.complete()
    expect(defineProcess('P').step('a', step).concurrency).toBeNull()
    const limited = defineProcess('P', { concurrency: 3 }).step('a', step)
    expect(limited.concurrency).toEqual({ limit: 3, keyOf: null })
    const byKey = defineProcess('P', {
      input: z.object({ customer: z.string() }),
      concurrency: 1,
      concurrencyKey: (input) => {
        expectTypeOf(input).toEqualTypeOf<{ customer: string }>()
        return input.customer
      },
    }).step('a', step)
    expect(byKey.concurrency?.keyOf?.({ customer: 'Ada' } as never)).toBe('Ada')
    // @ts-expect-error a key is a text
    void (() => defineProcess('P', { concurrency: 1, concurrencyKey: () => 7 }))
  })

  it('a process may limit all its runs and the runs of each key; the key is the company unless the process has a function', () => {
    const concurrencyOf = (options: Parameters<typeof defineProcess>[1]) =>
      defineProcess('P', options).step('a', (step) => step.complete()).concurrency
    const both = concurrencyOf({ concurrency: { total: 50, perKey: 2 } })
    expect(both).toMatchObject({ limit: 2, total: 50, byRealm: true })
    const byCompany = concurrencyOf({ concurrency: { perKey: 2 } })
    expect(byCompany).toMatchObject({ limit: 2, byRealm: true })
    expect(byCompany).not.toHaveProperty('total')
    expect(concurrencyOf({ concurrency: { total: 50 } })).toEqual({ limit: 50, keyOf: null })
    const concurrencyKey = () => 'a'
    expect(concurrencyOf({ concurrency: { total: 50 }, concurrencyKey })).toEqual({
      limit: 50,
      total: 50,
      keyOf: concurrencyKey,
    })
    expect(concurrencyOf({ concurrency: { perKey: 2 }, concurrencyKey })).toEqual({
      limit: 2,
      keyOf: concurrencyKey,
    })
    void (() => {
      // @ts-expect-error one of the limits is needed
      defineProcess('P', { concurrency: {} })
      // @ts-expect-error the limits are numbers
      defineProcess('P', { concurrency: { total: '5' } })
      // @ts-expect-error there is no such limit
      defineProcess('P', { concurrency: { total: 5, perCompany: 1 } })
    })
  })
})

describe('the settings of a process', () => {
  const process = (targets: (settings: { readonly erpKey: Secret }) => unknown) =>
    defineProcess('P', {
      settings: { erpUrl: z.url(), erpKey: secret() },
      // A JavaScript process file can define targets that TypeScript would reject, so the types are not checked here.
      targets: targets as never,
    }).step('a', (step) => step.complete())
  const values = { erpUrl: 'https://erp.example', erpKey: new Secret(key) }

  it('a process without settings is ready to run at once, and a process with settings only after bindSettings()', () => {
    expect(defineProcess('P').step('a', (step) => step.complete()).bound).toMatchObject({
      values: {},
    })
    const definition = process(({ erpKey }) => ({
      erp: { url: 'https://erp.example/v1/', auth: { bearer: erpKey }, timeoutMs: 10 },
    }))
    expect(definition.bound).toBeNull()
    const { bound } = bindSettings(definition, values)
    expect(bound?.values).toEqual({ erpUrl: 'https://erp.example' })
    expect(bound?.targets.get('erp')).toMatchObject({
      url: 'https://erp.example/v1',
      timeoutMs: 10,
    })
    expect(bound?.targets.get('erp')?.auth?.value.reveal()).toBe(`Bearer ${key}`)
  })

  it('the auth of a target is converted to a request header', () => {
    const authOf = (auth: (erpKey: Secret) => unknown) =>
      bindSettings(
        process(({ erpKey }) => ({ erp: { url: 'http://erp', auth: auth(erpKey) } })),
        values,
      ).bound?.targets.get('erp')?.auth
    const basic = authOf((password) => ({ basic: { user: 'me', password } }))
    expect(basic?.name).toBe('authorization')
    expect(basic?.value.reveal()).toBe(`Basic ${btoa(`me:${key}`)}`)
    const header = authOf((value) => ({ header: { name: 'X-Api-Key', value } }))
    expect(header?.name).toBe('x-api-key')
    expect(header?.value.reveal()).toBe(key)
  })

  it.each([
    ['target erp: must be an object with a url', () => ({ erp: 'http://erp' })],
    ['target erp: has no member perMinute', () => ({ erp: { url: 'http://erp', perMinute: 5 } })],
    ['target erp: url must be an http(s) URL', () => ({ erp: { url: 'ftp://erp' } })],
    ['target erp: url must have no user information', () => ({ erp: { url: 'http://a:b@erp' } })],
    [
      'target erp: a secret must not be in its url',
      ({ erpKey }: { erpKey: Secret }) => ({ erp: { url: `http://erp/?key=${erpKey.reveal()}` } }),
    ],
    [
      'target erp: a secret must not be in its url',
      ({ erpKey }: { erpKey: Secret }) => ({ erp: { url: `http://erp/${String(erpKey)}` } }),
    ],
    [
      'target erp: auth.bearer must be a setting that secret() declares',
      () => ({ erp: { url: 'http://erp', auth: { bearer: 'text' } } }),
    ],
    ['target erp: auth must have one member', () => ({ erp: { url: 'http://erp', auth: {} } })],
    [
      'target erp: auth has no member digest',
      () => ({ erp: { url: 'http://erp', auth: { digest: 1 } } }),
    ],
    [
      'target erp: auth.header.name must be',
      ({ erpKey }: { erpKey: Secret }) => ({
        erp: { url: 'http://erp', auth: { header: { name: 'Host', value: erpKey } } },
      }),
    ],
    [
      'target erp: auth.basic.user must be a text without a colon',
      ({ erpKey }: { erpKey: Secret }) => ({
        erp: { url: 'http://erp', auth: { basic: { user: 'a:b', password: erpKey } } },
      }),
    ],
    ['target erp: timeoutMs must be', () => ({ erp: { url: 'http://erp', timeoutMs: -1 } })],
    ['__proto__ cannot name a target', () => JSON.parse('{"__proto__": {"url": "http://erp"}}')],
    ['targets must be an object', () => []],
    [
      'process P: no [secret] today',
      ({ erpKey }: { erpKey: Secret }) => {
        throw new Error(`no ${erpKey.reveal()} today`)
      },
    ],
  ])('targets are rejected with a reason that contains no secret: %s', (reason, targets) => {
    const bind = () => bindSettings(process(targets as never), values)
    expect(bind).toThrow(reason)
    expect(bind).not.toThrow(key)
  })

  it.each([
    ['an object', { auth: { key: new Secret(key) } }],
    ['a list', [[new Secret(key)]]],
    ['a map', new Map([['a', new Map([['key', new Secret(key)]])]])],
    ['a set', new Set([new Secret(key)])],
  ])('a setting with a secret inside %s is rejected, because steps could read it', (_, erp) => {
    const bind = () =>
      bindSettings(
        process(() => ({})),
        { ...values, erp },
      )
    expect(bind).toThrow(TypeError)
    expect(bind).toThrow('process P: setting erp must not contain a secret')
    expect(bind).not.toThrow(key)
  })

  it('bindSettings() accepts a setting whose value refers to itself', () => {
    const erp: Record<string, unknown> = { url: 'http://erp' }
    erp['self'] = erp
    expect(
      bindSettings(
        process(() => ({})),
        { ...values, erp },
      ).bound?.values,
    ).toHaveProperty('erp')
  })

  it('a secret must have 8 to 2,048 characters', () => {
    const tooLong = secret().safeParse('x'.repeat(2_049))
    expect(tooLong.error?.message).toContain('must have at most 2048 characters')
    expect(secret().safeParse('short').error?.message).toContain('must have at least 8 characters')
    expect(secret().parse(key).reveal()).toBe(key)
  })
})
