import { describe, expect, it } from 'vitest'
import { answered, outcomeOf } from '../../test-support/step-outcome.ts'
import type { Step } from './step.ts'

const object = (members: object) =>
  answered(200, JSON.stringify({ Invoice: { Id: '12', DocNumber: 'A-1', ...members } }))
const stale = answered(400, JSON.stringify({ Fault: { Error: [{ code: '5010' }] } }))
const change = { PrivateNote: 'sent', CustomerRef: { value: '3' } }
const update = (step: Step) => step.update('Invoice', '12', change)

describe('an update of an object in the books', () => {
  it('is a sparse update of the version that was read, and completes the step', async () => {
    const { outcome, calls } = await outcomeOf(
      (step: Step) =>
        step.update('Invoice', '12', change, {
          parse: (body) => (body as { Invoice: { SyncToken: string } }).Invoice.SyncToken,
        }),
      [object({ SyncToken: '4' }), object({ SyncToken: '5' })],
    )
    expect(outcome).toMatchObject({ kind: 'completed', data: '5', response: { status: 200 } })
    expect(calls).toMatchObject([
      { method: 'GET', url: { pathname: '/v3/company/42/invoice/12' } },
      { method: 'POST', url: { pathname: '/v3/company/42/invoice' } },
    ])
    expect(calls.map(({ headers }) => headers['idempotency-key'])).toEqual([
      undefined,
      'P/a%2Fb/2/second',
    ])
    expect(JSON.parse(calls[1]?.body ?? '')).toEqual({
      ...change,
      Id: '12',
      SyncToken: '4',
      sparse: true,
    })
  })

  it('is repeated once, with another key, if another program has changed other fields meanwhile', async () => {
    const { outcome, calls } = await outcomeOf(update, [
      object({ SyncToken: '4', CustomerRef: { value: '1', name: 'Ada' } }),
      stale,
      object({ SyncToken: '5', CustomerRef: { value: '1', name: 'Ada Lee' }, DocNumber: 'A-2' }),
      object({ SyncToken: '6' }),
    ])
    expect(outcome).toMatchObject({ kind: 'completed' })
    expect(JSON.parse(calls[3]?.body ?? '')).toMatchObject({ SyncToken: '5' })
    expect(calls[3]?.headers['idempotency-key']).toBe('P/a%2Fb/2/second/2')
  })

  it('fails as changed_outside with the names of the fields if another program has changed the same fields', async () => {
    const { outcome, calls } = await outcomeOf(update, [
      object({ SyncToken: '4', CustomerRef: { value: '1' } }),
      stale,
      object({ SyncToken: '5', CustomerRef: { value: '2' }, PrivateNote: 'paid' }),
    ])
    expect(outcome).toEqual({
      kind: 'failed',
      errorClass: 'changed_outside',
      error: 'Invoice 12 was changed in the books while it was updated: CustomerRef, PrivateNote',
      response: null,
    })
    expect(calls).toHaveLength(3)
  })

  it('fails as changed_outside if the object is changed again before the repetition', async () => {
    const { outcome, calls } = await outcomeOf(update, [
      object({ SyncToken: '4' }),
      stale,
      object({ SyncToken: '5' }),
      stale,
    ])
    expect(outcome).toMatchObject({ kind: 'failed', errorClass: 'changed_outside' })
    expect(calls).toHaveLength(4)
  })

  it('leaves the step in doubt only after its own call got no response', async () => {
    const lost = { kind: 'failed', reason: 'reset', isSent: true } as const
    expect((await outcomeOf(update, [lost])).outcome).not.toHaveProperty('isInDoubt')
    expect((await outcomeOf(update, [object({ SyncToken: '4' }), lost])).outcome).toMatchObject({
      kind: 'retry',
      errorClass: 'no_answer',
      isInDoubt: true,
    })
  })

  it('ends the step as execute does if the object cannot be read', async () => {
    expect((await outcomeOf(update, [answered(503)])).outcome).toMatchObject({ kind: 'retry' })
    expect((await outcomeOf(update, [answered(200, '{}')])).outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'response_invalid',
    })
    expect((await outcomeOf(update, [], { realm: null })).outcome).toMatchObject({
      errorClass: 'realm_missing',
    })
  })

  it.each<[string, (step: Step) => unknown]>([
    ['no entity', (step) => step.update('', '12', change)],
    ['a path in place of the entity', (step) => step.update('../x', '12', change)],
    ['no id', (step) => step.update('Invoice', '', change)],
    ['nothing to change', (step) => step.update('Invoice', '12', {})],
    ['a version', (step) => step.update('Invoice', '12', { SyncToken: '1' })],
  ])('with %s is a bug of the step', async (_, run) => {
    expect((await outcomeOf(run)).outcome).toMatchObject({
      kind: 'failed',
      errorClass: 'step_threw',
    })
  })
})
