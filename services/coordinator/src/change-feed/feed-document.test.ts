import { describe, expect, it } from 'vitest'
import { eventsOf, readChangeData, type ReadObject, readQueried } from './feed-document.ts'
import { ProviderEvent } from '@integration-host/shared/contracts/provider-event'

const MetaData = {
  CreateTime: '2026-11-01T08:00:00-08:00',
  LastUpdatedTime: '2026-11-02T08:00:00-08:00',
}
const invoice = { Id: '9', SyncToken: '0', TotalAmt: 12, MetaData }
const read = {
  entity: 'Invoice',
  id: '9',
  createdAt: Date.parse('2026-11-01T16:00:00Z'),
  changedAt: Date.parse('2026-11-02T16:00:00Z'),
  isDeleted: false,
  content: invoice,
}

describe('a response of the change feed', () => {
  it('a response of the change feed becomes its objects with their ids and times', () => {
    const document = {
      CDCResponse: [
        { QueryResponse: [{ Invoice: [invoice], startPosition: 1, maxResults: 1 }, {}] },
      ],
      time: '2026-11-02T09:00:00.123-08:00',
    }
    const at = Date.parse('2026-11-02T17:00:00.123Z')
    expect(readChangeData(JSON.stringify(document))).toEqual({ objects: [read], count: 1, at })
  })

  it('a deleted object in a response of the change feed has only an id and a time, and is marked as deleted', () => {
    const deleted = {
      domain: 'QBO',
      status: 'Deleted',
      Id: '4',
      MetaData: { LastUpdatedTime: '2026-11-02T16:00:00Z' },
    }
    const document = { CDCResponse: [{ QueryResponse: [{ Bill: [deleted] }] }] }
    expect(readChangeData(JSON.stringify(document))).toEqual({
      objects: [
        {
          entity: 'Bill',
          id: '4',
          createdAt: null,
          changedAt: read.changedAt,
          isDeleted: true,
          content: deleted,
        },
      ],
      count: 1,
      at: null,
    })
  })

  it('the object count of a change feed response includes objects that cannot be read', () => {
    const document = {
      CDCResponse: [{ QueryResponse: [{ Invoice: [{ Id: '1' }, null, invoice] }] }],
      time: 'soon',
    }
    expect(readChangeData(JSON.stringify(document))).toEqual({
      objects: [read],
      count: 3,
      at: null,
    })
  })

  it.each([
    '',
    'null',
    '[]',
    '{}',
    '{"CDCResponse":{}}',
    '{"CDCResponse":[{"QueryResponse":{}}]}',
    '{"CDCResponse":[{"QueryResponse":["Invoice"]}]}',
    '{"CDCResponse":[{"QueryResponse":[{"Fault":{}}]}]}',
    '<html></html>',
  ])(
    'readChangeData() rejects a document that is not a response of the change feed: %s',
    (body) => {
      expect(readChangeData(body)).toBeNull()
    },
  )
})

describe('a response to a query of the provider', () => {
  it('the response to a query contains the objects of the queried entity', () => {
    expect(readQueried(JSON.stringify({ QueryResponse: { Invoice: [invoice] } }))).toEqual({
      objects: [read],
      count: 1,
      at: null,
    })
    expect(readQueried('{"QueryResponse":{}}')).toEqual({ objects: [], count: 0, at: null })
  })

  it.each(['', '{}', '{"QueryResponse":[]}'])(
    'readQueried() rejects a document that is not a query response: %s',
    (body) => {
      expect(readQueried(body)).toBeNull()
    },
  )
})

const SINCE = Date.parse('2026-11-23T12:00:00Z')
const at = (seconds: number): number => SINCE + seconds * 1_000

function idsOf(given: Partial<ReadObject>): string[] {
  const object = {
    entity: 'Invoice',
    id: '7',
    createdAt: null,
    changedAt: at(60),
    isDeleted: false,
  }
  const events = eventsOf('123', { ...object, ...given } as ReadObject, SINCE)
  for (const event of events) expect(ProviderEvent.parse(event)).toEqual(event)
  return events.map(({ Operation, Id }) => `${Operation} ${Id}`)
}

describe('the events of an object in the change feed', () => {
  it.each<[string, Partial<ReadObject>, string[]]>([
    [
      'changed after an earlier creation: an update',
      { createdAt: at(-60) },
      ['update Invoice-7@2026-11-23T12:01:00Z/123'],
    ],
    [
      'created and not changed since: a creation',
      { createdAt: at(60) },
      ['create Invoice-7@2026-11-23T12:01:00Z/123'],
    ],
    [
      'created and changed in the same second: a creation',
      { createdAt: at(60.1), changedAt: at(60.9) },
      ['create Invoice-7@2026-11-23T12:01:00Z/123'],
    ],
    [
      'created and changed later: both',
      { createdAt: at(10) },
      ['create Invoice-7@2026-11-23T12:00:10Z/123', 'update Invoice-7@2026-11-23T12:01:00Z/123'],
    ],
    [
      'created in the second in which the window begins: a creation',
      { createdAt: SINCE, changedAt: SINCE },
      ['create Invoice-7@2026-11-23T12:00:00Z/123'],
    ],
    [
      'deleted: a deletion',
      { isDeleted: true },
      ['delete Invoice-7:deleted@2026-11-23T12:01:00Z/123'],
    ],
    ['without a time of creation: an update', {}, ['update Invoice-7@2026-11-23T12:01:00Z/123']],
  ])(
    'eventsOf() returns the right events for an object of the change feed: %s',
    (_, object, ids) => {
      expect(idsOf(object)).toEqual(ids)
    },
  )
})
