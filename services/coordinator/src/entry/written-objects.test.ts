import { describe, expect, it } from 'vitest'
import { fieldsOf, foundObject, valueAt, writtenObjects } from './written-objects.ts'

const written = (path: string, body: unknown, response: unknown) =>
  writtenObjects(
    {
      url: new URL(`http://gateway:7218/v3/company/42/${path}`),
      body: body === null ? null : JSON.stringify(body),
    },
    typeof response === 'string' ? response : JSON.stringify(response),
  ).map(({ entity, id, operation, syncToken }) => [entity, id, operation, syncToken])

const invoice = (members: object = {}) => ({
  Invoice: { Id: '129', SyncToken: '0', ...members },
  time: '2026-11-29T12:00:00Z',
})

describe('the objects that a call has written', () => {
  it.each([
    ['a new object', 'invoice?requestid=k', { Line: [] }, invoice(), 'create'],
    ['an update with an id', 'invoice', { Id: '129', sparse: true }, invoice(), 'update'],
    ['a void', 'invoice?operation=void', { Id: '129' }, invoice(), 'void'],
    [
      'a payment is voided by an update',
      'payment?operation=update&include=void',
      { Id: '129' },
      invoice(),
      'void',
    ],
    ['an e-mail of an existing object', 'invoice/129/send', null, invoice(), 'update'],
    ['a deletion', 'invoice?operation=delete', { Id: '129' }, invoice(), 'delete'],
    [
      'a deletion without its parameter',
      'invoice',
      { Id: '129' },
      invoice({ status: 'Deleted' }),
      'delete',
    ],
  ])('%s', (_, path, body, response, operation) => {
    expect(written(path, body, response)).toEqual([['Invoice', '129', operation, '0']])
  })

  it.each([
    ['a fault with status 200', 'invoice', { Fault: { Error: [{ code: '6240' }] } }],
    ['a query by POST', 'query', { QueryResponse: { Invoice: [{ Id: '129' }] } }],
    ['an object without an id', 'invoice', { Invoice: { SyncToken: '0' } }],
    ['an id that cannot be part of an address', 'invoice', { Invoice: { Id: '../1' } }],
    ['no JSON', 'invoice', 'created'],
    ['an empty body', 'invoice', ''],
    ['a list', 'invoice', [{ Invoice: { Id: '129' } }]],
  ])('none: %s', (_, path, response) => {
    expect(written(path, {}, response)).toEqual([])
  })

  it('a call outside the paths of a company, such as GraphQL, has written none', () => {
    const url = new URL('http://gateway:7218/graphql')
    expect(writtenObjects({ url, body: '{}' }, JSON.stringify(invoice()))).toEqual([])
  })

  it('the items of a batch are writes, except those with a fault and queries', () => {
    const request = {
      BatchItemRequest: [
        { bId: 'a', operation: 'create', Customer: { DisplayName: 'Ada' } },
        { bId: 'b', operation: 'update', Invoice: { Id: '7', SyncToken: '1' } },
        { bId: 'c', operation: 'update', optionsData: 'void', Invoice: { Id: '8' } },
        { bId: 'd', operation: 'delete', Bill: { Id: '9' } },
        { bId: 'e', operation: 'create', Bill: {} },
        { bId: 'f', Query: 'select * from Invoice' },
      ],
    }
    const response = {
      BatchItemResponse: [
        { bId: 'd', Bill: { Id: '9', status: 'Deleted' } },
        { bId: 'a', Customer: { Id: '58', SyncToken: '0' } },
        { bId: 'b', Invoice: { Id: '7', SyncToken: '2' } },
        { bId: 'c', Invoice: { Id: '8', SyncToken: '4' } },
        { bId: 'e', Fault: { Error: [{ code: '2020' }] } },
        { bId: 'f', QueryResponse: { Invoice: [{ Id: '7' }] } },
      ],
    }
    expect(written('batch', request, response)).toEqual([
      ['Bill', '9', 'delete', null],
      ['Customer', '58', 'create', '0'],
      ['Invoice', '7', 'update', '2'],
      ['Invoice', '8', 'void', '4'],
    ])
  })

  it('an uploaded file is an object', () => {
    const response = { AttachableResponse: [{ Attachable: { Id: '3', SyncToken: '0' } }] }
    expect(written('upload', null, response)).toEqual([['Attachable', '3', 'create', '0']])
  })
})

describe('the written fields', () => {
  const sent = {
    sparse: false,
    DocNumber: 'A-1',
    CustomerRef: { value: '58' },
    TxnTaxDetail: { TotalTax: 1.1 },
    Line: [
      { Amount: 10, SalesItemLineDetail: { ItemRef: { value: '1', name: 'Pens' } } },
      { Amount: 20 },
    ],
    CustomField: [{ DefinitionId: '1', StringValue: 'x' }],
    Unknown: 1,
  }
  const object = {
    Id: '129',
    SyncToken: '0',
    MetaData: { CreateTime: '2026-11-29T12:00:00Z' },
    DocNumber: 'A-1',
    CustomerRef: { value: '58', name: 'Ada' },
    TxnTaxDetail: { TotalTax: 1.1, TaxLine: [] },
    Line: [
      {
        Id: '1',
        LineNum: 1,
        Amount: 10.0,
        SalesItemLineDetail: { ItemRef: { value: '1', name: 'Pens' } },
      },
      { Id: '2', LineNum: 2, Amount: 20 },
      { Amount: 30, DetailType: 'SubTotalLineDetail' },
    ],
    CustomField: [{ StringValue: 'x', DefinitionId: '1', Type: 'StringType' }],
    TotalAmt: 30,
  }

  it('are those of the request that the response contains, lines by their ids', () => {
    expect([...fieldsOf(sent, object).keys()]).toEqual([
      'DocNumber',
      'CustomerRef',
      'TxnTaxDetail.TotalTax',
      'Line',
      'Line[1].Amount',
      'Line[1].SalesItemLineDetail.ItemRef',
      'Line[2].Amount',
      'CustomField',
    ])
  })

  it('a line of an update is found by its id, wherever it stands', () => {
    const fields = fieldsOf({ Line: [{ Id: '2', Amount: 20 }] }, object)
    expect([...fields.keys()]).toEqual(['Line', 'Line[2].Amount'])
  })

  const changed = (change: object): string[] => {
    const now = { ...object, ...change }
    return [...fieldsOf(sent, object)].flatMap(([path, value]) =>
      valueAt(now, path) === value ? [] : [path],
    )
  }

  it.each([
    ['the name of a referenced object', { CustomerRef: { value: '58', name: 'Ada Lovelace' } }, []],
    ['a field that was not written', { TotalAmt: 31 }, []],
    [
      'the order of members',
      { CustomField: [{ DefinitionId: '1', Type: 'StringType', StringValue: 'x' }] },
      [],
    ],
    ['the subtotal', { Line: [...object.Line.slice(0, 2), { Amount: 31 }] }, []],
    ['another customer', { CustomerRef: { value: '59', name: 'Ada' } }, ['CustomerRef']],
    ['a field that is gone', { DocNumber: undefined }, ['DocNumber']],
    [
      'another amount',
      { Line: [{ ...object.Line[0], Amount: 11 }, object.Line[1]] },
      ['Line[1].Amount'],
    ],
    ['a further line', { Line: [...object.Line, { Id: '4', Amount: 1 }] }, ['Line']],
    ['a removed line', { Line: [object.Line[0]] }, ['Line', 'Line[2].Amount']],
  ])('compared with the object later: %s', (_, change, fields) => {
    expect(changed(change)).toEqual(fields)
  })

  it('are at most 500, and not deeper than a document of the provider', () => {
    const many = Object.fromEntries(Array.from({ length: 600 }, (_, n) => [`F${n}`, n]))
    expect(fieldsOf(many, many).size).toBe(500)
    let deep: object = { A: 1 }
    for (let n = 0; n < 100; n += 1) deep = { A: deep }
    expect(fieldsOf(deep as Record<string, unknown>, deep as Record<string, unknown>).size).toBe(0)
  })
})

describe('the object that confirm has found', () => {
  const at = Date.parse('2026-11-29T12:00:00Z')
  const found = (...objects: object[]) =>
    foundObject('42', JSON.stringify({ QueryResponse: { Invoice: objects } }), at).map(
      ({ id, operation }) => [id, operation],
    )
  const one = (Id: string, SyncToken: string, CreateTime?: string) => ({
    Id,
    SyncToken,
    ...(CreateTime !== undefined && { MetaData: { CreateTime } }),
  })

  it.each([
    ['created since the run began', one('1', '0', '2026-11-29T13:00:00+01:00'), 'create'],
    ['created by a provider whose clock is late', one('1', '1', '2026-11-29T11:56:00Z'), 'create'],
    ['created before the run', one('1', '3', '2026-11-29T11:54:00Z'), 'update'],
    ['without a time, in its first version', one('1', '0'), 'create'],
    ['without a time, in a later version', one('1', '1'), 'update'],
  ])('%s', (_, object, operation) => {
    expect(found(object)).toEqual([['1', operation]])
  })

  it('is none if there are several, or if there is none', () => {
    expect(found(one('1', '0'), one('2', '0'))).toEqual([])
    expect(found()).toEqual([])
    expect(foundObject('42', 'no JSON', at)).toEqual([])
  })

  it('is also the single object of a read by id', () => {
    const response = JSON.stringify({ Invoice: one('7', '0') })
    expect(foundObject('42', response, at)).toMatchObject([{ id: '7', realm: '42' }])
  })
})
