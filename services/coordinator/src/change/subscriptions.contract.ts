import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { MARGIN_MS, type MovableSource } from '../../test-support/movable-source.ts'
import { createSubscriptions, SUBSCRIPTION_MS, type Subscriptions } from './subscriptions.ts'

/** Tests subscriptions; both the memory and the PostgreSQL source must pass these tests. */
export function subscriptionsContract(name: string, open: () => Promise<MovableSource>): void {
  describe(`subscriptions in ${name}`, () => {
    let source: MovableSource
    let subscriptions: Subscriptions
    beforeEach(async () => {
      source = await open()
      subscriptions = createSubscriptions(source)
    })
    afterEach(() => source[Symbol.asyncDispose]())

    it('keepSubscriptions() returns each routing key to which a process subscribes, without duplicates', async () => {
      const keys = ['intuit.Invoice.create', 'intuit.Invoice.update']
      expect((await subscriptions.keepSubscriptions('P', keys)).toSorted()).toEqual(keys)
      expect((await subscriptions.keepSubscriptions('P', keys)).toSorted()).toEqual(keys)
    })

    it('keepSubscriptions() returns no routing key of another process', async () => {
      await subscriptions.keepSubscriptions('P', ['intuit.Invoice.create'])
      expect(await subscriptions.keepSubscriptions('Q', ['intuit.Bill.create'])).toEqual([
        'intuit.Bill.create',
      ])
    })

    it('keepSubscriptions() returns nothing for a process that has never subscribed to an event', async () => {
      expect(await subscriptions.keepSubscriptions('P', [])).toEqual([])
    })

    it('keepSubscriptions() returns a routing key of another replica for ten minutes', async () => {
      await subscriptions.keepSubscriptions('P', ['intuit.Bill.create'])
      await source.advance(SUBSCRIPTION_MS - MARGIN_MS)
      expect(await subscriptions.keepSubscriptions('P', [])).toEqual(['intuit.Bill.create'])
      await source.advance(MARGIN_MS)
      expect(await subscriptions.keepSubscriptions('P', [])).toEqual([])
    })

    it('wantedChanges() returns the routing keys that at least one process has subscribed to, for 30 days', async () => {
      expect(await subscriptions.wantedChanges()).toEqual([])
      await subscriptions.keepSubscriptions('P', ['intuit.Invoice.create', 'intuit.Bill.delete'])
      await subscriptions.keepSubscriptions('Q', ['intuit.Invoice.create'])
      await source.advance(2 * SUBSCRIPTION_MS)
      await subscriptions.keepSubscriptions('P', [])
      expect((await subscriptions.wantedChanges()).toSorted()).toEqual([
        'intuit.Bill.delete',
        'intuit.Invoice.create',
      ])
      await source.advance(30 * 86_400_000)
      await subscriptions.keepSubscriptions('P', [])
      expect(await subscriptions.wantedChanges()).toEqual(['intuit.Invoice.create'])
    })
  })
}
