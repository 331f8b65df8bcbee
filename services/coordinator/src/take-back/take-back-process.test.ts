import { describe, expect, it } from 'vitest'
import { siblingId, takeBackId } from './take-back-process.ts'

const operationOn = (realm?: readonly string[]) => ({
  ID: '3e0c',
  Request: {
    Filter: realm === undefined ? {} : { realm: [...realm] },
    PerSecond: 20,
    Realms: ['*'],
  },
})
const invoice = { realm: '42', entity: 'Invoice', id: '129' }
const payment = { entity: 'Payment', id: '130' }

describe('the id of a run that takes back an object', () => {
  it.each([
    ['of one company', ['42'], '3e0c/Invoice-129'],
    ['of another company than that of the object', ['43'], '3e0c/42/Invoice-129'],
    ['of two companies', ['42', '43'], '3e0c/42/Invoice-129'],
    ['of all companies', undefined, '3e0c/42/Invoice-129'],
  ])('for an operation on the runs %s', (_, realm, expected) => {
    const id = takeBackId(operationOn(realm), invoice)
    expect(id).toBe(expected)
    expect(siblingId(id, payment)).toBe(takeBackId(operationOn(realm), { ...invoice, ...payment }))
  })

  it('is short enough for a transaction, whatever the company, the operation and the object', () => {
    const longest = { realm: 'r'.repeat(64), entity: 'ReimburseCharge', id: '9'.repeat(20) }
    const id = takeBackId({ ...operationOn(), ID: crypto.randomUUID() }, longest)
    expect(id.length).toBeLessThanOrEqual(128)
    expect(siblingId(id, longest)).toBe(id)
  })
})
