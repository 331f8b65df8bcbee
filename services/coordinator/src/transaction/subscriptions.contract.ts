import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { TransactionSource } from './transaction-source.ts'

/** Tests subscriptions; both the memory and the PostgreSQL source must pass these tests. */
export function subscriptionsContract(name: string, open: () => Promise<TransactionSource>): void {
  describe(`subscriptions in ${name}`, () => {
    let source: TransactionSource
    beforeEach(async () => {
      source = await open()
    })
    afterEach(() => source[Symbol.asyncDispose]())

    it('keepSubscriptions() returns each routing key to which a process subscribes, without duplicates', async () => {
      const keys = ['intuit.Invoice.create', 'intuit.Invoice.update']
      expect((await source.keepSubscriptions('P', keys)).toSorted()).toEqual(keys)
      expect((await source.keepSubscriptions('P', keys)).toSorted()).toEqual(keys)
    })

    it('keepSubscriptions() returns no routing key of another process', async () => {
      await source.keepSubscriptions('P', ['intuit.Invoice.create'])
      expect(await source.keepSubscriptions('Q', ['intuit.Bill.create'])).toEqual([
        'intuit.Bill.create',
      ])
    })

    it('keepSubscriptions() returns nothing for a process that has never subscribed to an event', async () => {
      expect(await source.keepSubscriptions('P', [])).toEqual([])
    })
  })
}
