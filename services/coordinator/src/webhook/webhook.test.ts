import type { CredentialEvent } from '@integration-host/shared/contracts/credential'
import { webhookTypes } from '@integration-host/shared/contracts/events'
import { describe, expect, it } from 'vitest'
import type { AnnouncedRun, NewWebhook } from '../run/transaction-source.ts'
import { webhooksOfCredential, webhooksOfEntry, webhooksOfTransition } from './webhook.ts'
import { createLogger } from '@integration-host/shared/observability/logger'
import { systemClock } from '@integration-host/shared/process/clock'
import { eventually } from '@integration-host/shared/test-support/eventually'
import type { Records } from '../records/records.ts'
import { startWebhookRuns } from './start-webhooks.ts'

const receivers = [{ id: 'all', events: new Set(webhookTypes) }]
const run: AnnouncedRun = {
  Process: 'OrderProcess',
  TransactionID: '66',
  ReplayID: 1,
  Status: 'Failed',
  StepName: 'order',
  Version: 7,
  InDoubt: true,
  ErrorClass: 'http_404',
  LastError: 'GET x responded with 404',
}
const credential: CredentialEvent = {
  Name: 'ACC-4711',
  Environment: '4711',
  Expiry: '2027-01-01T00:00:00.000Z',
  Version: 3,
  At: '2026-11-20T00:00:00.000Z',
}
const idOf = (change: Partial<AnnouncedRun>) =>
  String(
    webhooksOfTransition(receivers, { ...run, InDoubt: false, ...change })[0]?.InitialData[
      'MessageID'
    ],
  )

describe('the webhook of a removed credential', () => {
  const labelled = { ...credential, Label: 'Bakery', Tags: { region: 'north' } }

  it.each([
    [undefined, { Label: 'Bakery', Tags: { region: 'north' } }],
    [true, {}],
  ])(
    'has the label and the tags unless the data of the company is erased: %s',
    (erase, expected) => {
      const event = { ...labelled, ...(erase !== undefined && { erase }) }
      const [webhook] = webhooksOfCredential(receivers, 'removed', event)
      const { Name, Label, Tags } = (webhook as NewWebhook).InitialData['Data'] as CredentialEvent
      expect(Name).toBe('ACC-4711')
      expect({ ...(Label && { Label }), ...(Tags && { Tags }) }).toEqual(expected)
      expect(webhook?.TransactionID).toMatch(/^credential\.removed-/)
    },
  )
})

describe('the webhooks that a transition causes', () => {
  it('a run that fails in doubt causes two webhooks: the first reports the doubt, and the second the failure', () => {
    const webhooks = webhooksOfTransition(receivers, run)
    expect(webhooks.map(({ InitialData }) => InitialData['MessageID'])).toEqual([
      'OrderProcess/66/1/order/in_doubt',
      'OrderProcess/66/1/7',
    ])
  })

  it.each([
    ['Queued', false],
    ['Running', false],
    ['Retrying', false],
    ['Waiting', false],
    ['Cancelled', false],
  ] as const)('a transition to %s without doubt causes no webhook', (Status, InDoubt) => {
    expect(webhooksOfTransition(receivers, { ...run, Status, InDoubt })).toEqual([])
  })

  it('the webhook of a run that the provider has rejected has the code and message of the provider, and no details', () => {
    const LastError = '6240 Duplicate Name Exists Error: Ada Ltd (POST x responded with 400)'
    const rejected = { ...run, InDoubt: false, ErrorClass: 'http_400', LastError }
    const [webhook] = webhooksOfTransition(receivers, rejected)
    expect(webhook?.InitialData['Data']).toMatchObject({
      ErrorClass: 'http_400',
      ProviderError: '6240 Duplicate Name Exists Error',
    })
    expect(JSON.stringify(webhook)).not.toContain('Ada')
  })

  it('a run that delivers a webhook causes no webhook itself, so that a failed delivery does not cause another one', () => {
    expect(webhooksOfTransition(receivers, { ...run, Process: 'Webhook' })).toEqual([])
  })

  it('a receiver gets only the events to which it subscribes', () => {
    const some = [
      { id: 'failures', events: new Set(['transaction.failed'] as const) },
      { id: 'credentials', events: new Set(['credential.stored'] as const) },
    ]
    expect(webhooksOfTransition(some, run).map(({ Receiver }) => Receiver)).toEqual(['failures'])
    expect(webhooksOfTransition(some, { ...run, Status: 'Completed' })).toEqual([])
  })

  it.each(['a.b', '.'.repeat(100), 'ä/ö', '😀'.repeat(64), ' \u2028 "\\', '漢'.repeat(128)])(
    'the webhook-id for the transaction id %j is valid in a header and contains no full stop',
    (TransactionID) => {
      expect(idOf({ TransactionID })).toMatch(/^[\x21-\x2d\x2f-\x7e]{1,255}$/)
      expect(idOf({ TransactionID })).not.toBe(idOf({ TransactionID, Version: 8 }))
    },
  )

  it('the id of a webhook run is the same for every copy of an event, but differs between receivers', () => {
    const two = [...receivers, { id: 'other', events: new Set(webhookTypes) }]
    const ids = () => webhooksOfTransition(two, run).map(({ TransactionID }) => TransactionID)
    expect(ids()).toEqual(ids())
    expect(new Set(ids()).size).toBe(4)
  })
})

describe('the webhooks that a credential event causes', () => {
  it('the webhook of a credential event has the company and the time of the event', () => {
    expect(webhooksOfCredential(receivers, 'stored', credential)).toMatchObject([
      { Receiver: 'all', Realm: '4711', At: credential.At },
    ])
  })

  it('the hourly refresh of a credential causes no webhook', () => {
    expect(webhooksOfCredential(receivers, 'refreshed', credential)).toEqual([])
  })

  it('the webhook of a credential fault does not contain the message of the fault, which quotes the provider', () => {
    const Fault = { Code: 'invalid_grant', Message: 'quoted', At: credential.At, Attempts: 2 }
    const [webhook] = webhooksOfCredential(receivers, 'faulted', { ...credential, Fault })
    expect(JSON.stringify(webhook)).not.toContain('quoted')
    expect(webhook?.InitialData['Data']).toMatchObject({ Fault: { Code: 'invalid_grant' } })
  })
})

it('if counting the undelivered webhooks fails, the next poll does not count them', async () => {
  const calls = { polls: 0, counts: 0 }
  const starter = startWebhookRuns({
    source: {
      startWebhooks: async () => {
        calls.polls += 1
        return { runs: [], hasMore: false }
      },
      records: <Row extends object>() =>
        ({
          count: async () => {
            calls.counts += 1
            throw new Error('canceling statement due to statement timeout')
          },
        }) as unknown as Records<Row>,
    },
    publish() {},
    onBacklog() {},
    log: createLogger('test', 'silent'),
    clock: systemClock,
    random: () => 0.5,
    intervalMs: 3_600_000,
  })
  await eventually(() => expect(calls.counts).toBe(1))
  starter.hint()
  await eventually(() => expect(calls.polls).toBe(2))
  await starter[Symbol.asyncDispose]()
  expect(calls).toEqual({ polls: 2, counts: 1 })
})

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
  const two = [
    { id: 'one', events: new Set(['entry.deleted'] as const) },
    { id: 'two', events: new Set(['entry.changed'] as const) },
  ]
  const webhooks = webhooksOfEntry(two, event)
  expect(webhooks).toEqual(webhooksOfEntry(two, event))
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
