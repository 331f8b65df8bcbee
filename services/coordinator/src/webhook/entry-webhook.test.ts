import { expect, it } from 'vitest'
import { webhooksOfEntry } from './webhook.ts'

it('an object that was deleted outside is reported to the receivers that subscribe to it, with ids only', () => {
  const event = {
    Id: 'entry-Invoice-129:deleted@2026-11-23T17:05:09Z/42',
    Realm: '42',
    Entity: 'Invoice',
    EntityID: '129',
    Kind: 'deleted',
    State: 'Deleted',
    Changed: [],
    At: '2026-11-23T17:05:09.000Z',
    EntryID: '8a4f',
    Process: 'Export',
    TransactionID: 'A-1',
    ReplayID: 0,
    StepName: 'create',
  } as const
  const receivers = [
    { id: 'one', events: new Set(['entry.deleted'] as const) },
    { id: 'two', events: new Set(['entry.changed'] as const) },
  ]
  const webhooks = webhooksOfEntry(receivers, event)
  expect(webhooks).toEqual(webhooksOfEntry(receivers, event))
  const { Id, Realm, At, Kind, ...Data } = event
  expect(webhooks).toEqual([
    {
      Receiver: 'one',
      Lane: '',
      TransactionID: expect.stringMatching(/^entry\.deleted-[\da-f]{32}$/),
      Realm,
      At,
      InitialData: { Receiver: 'one', MessageID: Id, Type: `entry.${Kind}`, Data },
    },
  ])
})
