import { describe, expect, it } from 'vitest'
import {
  changeOf,
  debounceSecondsOf,
  ProviderChange,
  routingKeysOf,
  triggersOf,
} from './change-trigger.ts'
import { defineProcess } from './define-process.ts'

const entry = { provider: 'intuit', entity: 'Invoice', operations: ['create', 'update'] }

describe('the member `on` of a process definition', () => {
  it('a process definition may omit the member `on`', () => {
    expect(triggersOf('Sale', undefined)).toEqual([])
  })

  it('the member `on` of a process definition results in one routing key for each entity and operation', () => {
    const on = [entry, { provider: 'intuit', entity: 'Payment', operations: ['void'] }]
    expect(routingKeysOf(triggersOf('Sale', on))).toEqual([
      'intuit.Invoice.create',
      'intuit.Invoice.update',
      'intuit.Payment.void',
    ])
  })

  it.each([
    ['no array', entry, 'on of Sale must be an array'],
    ['null', [null], 'on[0] of Sale must be an object with provider, entity and operations'],
    ['a text', ['Invoice'], 'on[0] of Sale must be an object with provider, entity and operations'],
    [
      'an unknown member',
      [{ ...entry, debounce: 5 }],
      'on[0] of Sale has no option debounce: did you mean debounceSeconds?',
    ],
    ...[0, -1, 1.5, 86_401, '30', null, Number.NaN].map(
      (debounceSeconds): [string, unknown, string] => [
        `debounceSeconds ${JSON.stringify(debounceSeconds)}`,
        [{ ...entry, debounceSeconds }],
        'on[0] of Sale: debounceSeconds must be a whole number from 1 to 86400',
      ],
    ),
    [
      'an unknown provider',
      [{ ...entry, provider: 'xero' }],
      "on[0] of Sale: 'xero' is not a provider: use 'intuit'",
    ],
    [
      'an entity in another spelling',
      [entry, { ...entry, entity: 'invoice' }],
      "on[1] of Sale: 'invoice' is not an entity whose changes are reported: use 'Invoice'",
    ],
    [
      'no entity',
      [{ provider: 'intuit', operations: ['create'] }],
      'on[0] of Sale: undefined is not an entity whose changes are reported',
    ],
    [
      'no operation',
      [{ ...entry, operations: [] }],
      'on[0] of Sale: operations must be an array with at least one operation',
    ],
    [
      'an unknown operation',
      [{ ...entry, operations: ['remove'] }],
      "on[0] of Sale: 'remove' is not an operation: use create, update, delete, merge, void, emailed",
    ],
    [
      'an operation twice',
      [{ ...entry, operations: ['create', 'create'] }],
      'on[0] of Sale: Invoice.create is named twice',
    ],
    [
      'a change in two entries',
      [entry, { ...entry, operations: ['update'] }],
      'on[1] of Sale: Invoice.update is named twice',
    ],
  ] satisfies [string, unknown, string][])(
    'a process definition is rejected if its member `on` has %s',
    (_, on, message) => {
      expect(() => triggersOf('Sale', on)).toThrow(new TypeError(message))
      const define = () =>
        defineProcess('Sale', { on } as never).step('a', (step) => step.complete())
      expect(define).toThrow(message)
    },
  )

  it('`on` may name an entity that this release does not know, whose events may spell it in lower case', () => {
    const named = {
      provider: 'intuit',
      entity: 'Widget',
      operations: ['create'],
      debounceSeconds: 5,
    }
    const triggers = triggersOf('Sale', [named, { ...named, entity: 'ChangeOrder' }])
    expect(routingKeysOf(triggers)).toEqual([
      'intuit.Widget.create',
      'intuit.widget.create',
      'intuit.ChangeOrder.create',
    ])
    expect(debounceSecondsOf(triggers, { Entity: 'widget', Operation: 'create' })).toBe(5)
  })

  it('the initial data of a run that a change starts matches the schema ProviderChange', () => {
    const change = changeOf({
      Id: 'Customer-27@2026-11-23T17:05:09Z/42',
      Provider: 'intuit',
      Realm: '42',
      Entity: 'Customer',
      EntityId: '27',
      Operation: 'merge',
      ChangedAt: '2026-11-23T17:05:09Z',
      DeletedId: '28',
      Source: 'webhook',
    })
    expect(ProviderChange.parse(change)).toEqual(change)
    expect(change).toMatchObject({ id: '27', deletedId: '28' })
  })
})
