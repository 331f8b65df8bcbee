import { onQueue } from '@integration-host/shared/contracts/provider-event'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { describe, expect, it } from 'vitest'
import { type Fixture, onBackends } from '../../test-support/fixture.ts'
import { changeWaitsContract } from './change-waits.contract.ts'
import {
  changeEvent,
  changesContract,
  isConsumed,
  publishEvent,
  refund,
  sale,
} from './changes.contract.ts'
import { createSubscriptions } from './subscriptions.ts'
import { processOf } from '../../test-support/process-of.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import type { Step } from '../step/step.ts'

changesContract('real')
changeWaitsContract('real')

const newer = processOf('Sale', {
  on: [{ provider: 'intuit', entity: 'Invoice', operations: ['update', 'delete'] }],
  steps: { sell: (step: Step): void => void step.complete() },
})
const create = changeEvent({ EntityId: 'create', Operation: 'create' })
const update = changeEvent({ EntityId: 'update' })
const deletion = changeEvent({ EntityId: 'delete', Operation: 'delete' })

describe('the bindings of the queue on.<Process>', () => {
  const opened = onBackends('real', { Sale: ['sell'], Refund: ['refund'] })
  const start = async (definition: ProcessDefinition): Promise<Fixture> => {
    const host = await opened.start({ processes: [definition] })
    await eventually(async () =>
      expect((await host.bus.depth(onQueue(definition.name)))?.consumers).toBeGreaterThan(0),
    )
    return host
  }
  const stop = async (host: Fixture): Promise<void> => host[Symbol.asyncDispose]()
  /** Makes it look as if the last replica with the definition `sale` had ended an hour ago. */
  const endSales = async (): Promise<void> => {
    await stop(await start(sale))
    const { database } = opened.backends()
    if (database === null) throw new Error('no database')
    await database.sql`
      update "Order_Installation" set "Value" = "Value" || jsonb_build_object('intuit.Invoice.create', now() - interval '1 hour')
      where "Name" = 'on:Sale'`
  }

  it('while replicas run two versions of a definition, the queue has the bindings of both versions', async () => {
    const old = await start(sale)
    const replica = await start(newer)
    await isConsumed(old, 'Sale', 2)
    for (const event of [create, update, deletion]) await publishEvent(old, event)
    for (const { Id } of [create, update, deletion]) await replica.reached(Id, 'Completed')
    await stop(replica)
    // The replica with the old definition starts again. It must not remove the binding of the new definition.
    await stop(old)
    const restarted = await start(sale)
    const second = changeEvent({ EntityId: 'second', Operation: 'delete' })
    await publishEvent(restarted, second)
    expect(await restarted.reached(second.Id, 'Completed')).toMatchObject({ Realm: '42' })
  })

  it('after an outage, the change feed still reads changes to which only replicas with another definition subscribed', async () => {
    await endSales()
    const host = await start(newer)
    expect(await createSubscriptions(host.source).wantedChanges()).toContain(
      'intuit.Invoice.create',
    )
  })

  it('a binding to which no replica has subscribed for a while is removed', async () => {
    await endSales()
    const host = await start(newer)
    await eventually(() =>
      expect(publishEvent(host, create)).rejects.toMatchObject({ code: 'broker_unavailable' }),
    )
    await publishEvent(host, deletion)
    await host.reached(deletion.Id, 'Completed')
  })

  it('a coordinator does not change the bindings of processes that it has not loaded', async () => {
    const sales = await start(sale)
    const refunds = await start(refund)
    const paid = changeEvent({ Entity: 'Payment', Operation: 'void' })
    await publishEvent(sales, update)
    await publishEvent(sales, paid)
    expect((await sales.reached(update.Id, 'Completed')).Process).toBe('Sale')
    expect((await refunds.reached(paid.Id, 'Completed')).Process).toBe('Refund')
    await isConsumed(sales, 'Sale', 1)
    await isConsumed(sales, 'Refund', 1)
  })
})
