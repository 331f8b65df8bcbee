import { describe, expect, it } from 'vitest'
import {
  CHANGE_ID,
  cloudEvent,
  legacyChange,
  legacyNotification,
  REALM,
} from '../../test-support/notifications.ts'
import { parseNotification } from './notification.ts'

const parse = (document: unknown) => parseNotification(Buffer.from(JSON.stringify(document)))
const idsOf = (document: unknown) => parse(document)?.events.map(({ Id }) => Id)
const reasonsOf = (document: unknown) => parse(document)?.ignored.map(({ reason }) => reason)

describe('a notification in the legacy format', () => {
  it('a notification in the legacy format becomes one event for each change of each company', () => {
    const document = {
      eventNotifications: [
        ...legacyNotification([legacyChange(), legacyChange({ name: 'Customer', id: '7' })])
          .eventNotifications,
        ...legacyNotification([legacyChange({ operation: 'Delete' })], '1185883450')
          .eventNotifications,
      ],
    }
    expect(idsOf(document)).toEqual([
      CHANGE_ID,
      `Customer-7@2026-11-23T17:05:09Z/${REALM}`,
      'Invoice-129:deleted@2026-11-23T17:05:09Z/1185883450',
    ])
  })

  it('the event for a notification in the legacy format names a deleted object only if the change is a merge', () => {
    const merge = legacyChange({ name: 'Customer', operation: 'Merge', deletedId: '27' })
    expect(parse(legacyNotification([merge]))?.events).toEqual([
      expect.objectContaining({ Operation: 'merge', DeletedId: '27' }),
    ])
    const update = { ...merge, operation: 'Update' }
    expect(parse(legacyNotification([update]))?.events[0]).not.toHaveProperty('DeletedId')
  })

  it('a notification in the legacy format may have a time whose offset has no colon', () => {
    const change = legacyChange({ lastUpdated: '2026-11-23T09:05:09-0800' })
    expect(idsOf(legacyNotification([change]))).toEqual([CHANGE_ID])
  })
})

describe('a notification in the CloudEvents format', () => {
  it('a notification in the CloudEvents format has the same event id for a change as the legacy format', () => {
    expect(idsOf([cloudEvent()])).toEqual([CHANGE_ID])
    expect(idsOf(legacyNotification())).toEqual([CHANGE_ID])
  })

  it('a notification in the CloudEvents format becomes an event without the data of the entity', () => {
    const data = { TotalAmt: 362.07, CustomerRef: { name: 'Amy' } }
    expect(parse([cloudEvent({ data })])?.events).toEqual([
      {
        Id: CHANGE_ID,
        Provider: 'intuit',
        Realm: REALM,
        Entity: 'Invoice',
        EntityId: '129',
        Operation: 'update',
        ChangedAt: '2026-11-23T17:05:09.179Z',
        Source: 'webhook',
      },
    ])
  })

  it('a notification in the CloudEvents format may be a single event instead of an array', () => {
    expect(idsOf(cloudEvent())).toEqual([CHANGE_ID])
  })

  it.each([
    ['created', 'create'],
    ['updated', 'update'],
    ['deleted', 'delete'],
    ['merged', 'merge'],
    ['void', 'void'],
    ['voided', 'void'],
    ['emailed', 'emailed'],
  ])('the operation %s of a CloudEvent becomes %s', (word, operation) => {
    const [event] = parse([cloudEvent({ type: `qbo.billpayment.${word}.v1` })])?.events ?? []
    expect(event).toMatchObject({ Entity: 'BillPayment', Operation: operation })
  })

  it.each(['deletedid', 'deletedId', 'DeletedID'])(
    'the event for a merge in the CloudEvents format names the deleted object in %s',
    (name) => {
      const merge = cloudEvent({ type: 'qbo.customer.merged.v1', data: { [name]: '27' } })
      expect(parse([merge])?.events).toEqual([
        expect.objectContaining({ Operation: 'merge', DeletedId: '27' }),
      ])
    },
  )

  it.each([
    ['changeorder', 'ChangeOrder'],
    ['CompanyCurrency', 'CompanyCurrency'],
    ['widget2', 'widget2'],
  ])('the event for the entity %s has the entity %s', (name, entity) => {
    const document = [cloudEvent({ type: `qbo.${name}.created.v1` })]
    expect(parse(document)?.events).toMatchObject([{ Entity: entity, Operation: 'create' }])
    expect(parse(document)?.ignored).toEqual([])
    const legacy = legacyNotification([legacyChange({ name })])
    expect(parse(legacy)?.events).toMatchObject([{ Entity: entity }])
  })

  it('a notification is read in both formats whatever the case of its member names', () => {
    const inUpperCase = (value: unknown): unknown =>
      Array.isArray(value)
        ? value.map(inUpperCase)
        : typeof value === 'object' && value !== null
          ? Object.fromEntries(
              Object.entries(value).map(([name, of]) => [name.toUpperCase(), inUpperCase(of)]),
            )
          : value
    expect(idsOf(inUpperCase([cloudEvent()]))).toEqual([CHANGE_ID])
    expect(idsOf(inUpperCase(legacyNotification()))).toEqual([CHANGE_ID])
  })
})

describe('a change that cannot be published', () => {
  const bad: readonly (readonly [string, Readonly<Record<string, unknown>>, string])[] = [
    [
      'an entity whose name is too long',
      { type: `qbo.${'x'.repeat(41)}.created.v1` },
      'unknown_entity',
    ],
    ['another namespace', { type: 'payroll.employee.created.v1' }, 'unknown_entity'],
    ['an unknown operation', { type: 'qbo.invoice.archived.v1' }, 'unknown_operation'],
    ['no type', { type: undefined }, 'malformed'],
    ['a realm that is a number', { intuitaccountid: 1185883450 }, 'realm_unusable'],
    ['a realm with a slash', { intuitaccountid: '1/2' }, 'realm_unusable'],
    ['no realm', { intuitaccountid: undefined }, 'realm_unusable'],
    ['an empty entity id', { intuitentityid: '' }, 'id_unusable'],
    ['an entity id with a line break', { intuitentityid: '1\n2' }, 'id_unusable'],
    ['an entity id that is a dot segment', { intuitentityid: '..' }, 'id_unusable'],
    ['an entity id with a path', { intuitentityid: '../x' }, 'id_unusable'],
    ['an entity id with a query', { intuitentityid: '5?operation=delete' }, 'id_unusable'],
    ['an entity id with a percent sign', { intuitentityid: '%2e%2e' }, 'id_unusable'],
    ['an entity id of 21 characters', { intuitentityid: '1'.repeat(21) }, 'id_unusable'],
    ['a time without a zone', { time: '2026-11-23T17:05:09' }, 'time_unusable'],
    ['a time that does not exist', { time: '2026-13-23T17:05:09Z' }, 'time_unusable'],
    ['a time beyond the year 9999', { time: '9999-12-31T23:59:59-08:00' }, 'id_unusable'],
    [
      'an unusable deleted id',
      { type: 'qbo.customer.merged.v1', data: { deletedid: {} } },
      'id_unusable',
    ],
    [
      'a deleted id with a path',
      { type: 'qbo.customer.merged.v1', data: { deletedId: '../1' } },
      'id_unusable',
    ],
  ]
  it.each(bad)(
    'a change with %s is ignored and does not affect the other changes',
    (_, change, reason) => {
      const document = [cloudEvent(change), cloudEvent()]
      expect(reasonsOf(document)).toEqual([reason])
      expect(idsOf(document)).toEqual([CHANGE_ID])
    },
  )

  it.each([[null], ['text'], [7], [[]], [{}]])(
    'a change that is %j is ignored in both formats',
    (change) => {
      expect(reasonsOf([change, cloudEvent()])).toEqual(['malformed'])
      expect(reasonsOf(legacyNotification([change]))).toHaveLength(1)
      expect(reasonsOf({ eventNotifications: [change] })).toEqual(['malformed'])
    },
  )

  it('the record of an ignored change contains only well-formed ids and names', () => {
    const change = cloudEvent({
      type: 'qbo.x.created.v1',
      intuitaccountid: 'a b',
      intuitentityid: '5',
    })
    expect(parse([change])?.ignored).toEqual([
      { reason: 'realm_unusable', entity: 'x', realm: null, entityId: '5' },
    ])
  })
})

describe('the body of a notification', () => {
  it('the body of a notification may begin with a byte order mark', () => {
    const body = Buffer.concat([
      Buffer.from([0xef, 0xbb, 0xbf]),
      Buffer.from(JSON.stringify([cloudEvent()])),
    ])
    expect(parseNotification(body)?.events).toHaveLength(1)
  })

  it('a notification that is an empty array contains no changes', () => {
    expect(parse([])).toEqual({ format: 'cloudevents', events: [], ignored: [] })
  })

  it('a notification is accepted if one of its members contains 900 nested arrays', () => {
    const nested = `${'['.repeat(900)}${']'.repeat(900)}`
    const text = JSON.stringify([cloudEvent({ data: { deletedid: 'HERE' } })]).replace(
      '"HERE"',
      nested,
    )
    expect(parseNotification(Buffer.from(text))?.events).toHaveLength(1)
  })

  it('a notification with more than 75,000 members and elements is rejected before it is parsed', () => {
    const body = (entries: number) => Buffer.from(`[${'{},'.repeat(entries / 2)}{}]`)
    expect(() => parseNotification(body(75_000))).toThrow(
      'JSON may have at most 75000 members and elements',
    )
    expect(parseNotification(body(74_000))?.events).toEqual([])
  })

  it.each([
    ['', 'is empty'],
    ['{"eventNotifications":[', 'is truncated'],
    ['hello', 'is text'],
    ['null', 'is null'],
    ['{}', 'is another object'],
    ['{"eventNotifications":{}}', 'has no list of notifications'],
    ['"[]"', 'is a string'],
  ])('a body has no known format if it %2$s', (text) => {
    expect(parseNotification(Buffer.from(text))).toBeNull()
  })

  it('a body that is not UTF-8 has no known format', () => {
    expect(parseNotification(Buffer.from([0x5b, 0x22, 0xff, 0x22, 0x5d]))).toBeNull()
  })
})
