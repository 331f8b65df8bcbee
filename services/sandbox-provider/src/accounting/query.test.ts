import { assert as holds, constantFrom, array, property, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseQuery, selected } from './query.ts'

const invoices = [
  { Id: '1', DocNumber: 'A-1', TotalAmt: 9, TxnDate: '2026-11-01', PrivateNote: "it's 100%" },
  { Id: '2', DocNumber: 'a-10', TotalAmt: 10, TxnDate: '2026-10-01' },
  {
    Id: '3',
    DocNumber: 'B-1',
    TotalAmt: 100.5,
    TxnDate: '2026-12-01',
    MetaData: { LastUpdatedTime: '2026-11-02T08:00:00-08:00' },
  },
]

const idsOf = (condition: string, all: readonly object[] = invoices, entity = 'Invoice') => {
  const query = parseQuery(`select * from ${entity} ${condition}`)
  if (query === null) return null
  return selected(all as readonly Record<string, unknown>[], entity, query).map(({ Id }) => Id)
}

describe('the conditions of a query to the accounting API', () => {
  it.each<[string, readonly string[]]>([
    ["where Id = '2'", ['2']],
    ["where id in ('1', '3')", ['1', '3']],
    ["where DocNumber = 'A-10'", ['2']],
    ["where DocNumber like 'a%'", ['1', '2']],
    ["where DocNumber like '%1'", ['1', '3']],
    ["where DocNumber like 'a-%0'", ['2']],
    ["where TotalAmt > '9'", ['2', '3']],
    ['where TotalAmt >= 10 and TotalAmt < 100', ['2']],
    ["where TxnDate > '2026-10-15' and TxnDate <= '2026-11-01'", ['1']],
    ["where MetaData.LastUpdatedTime >= '2026-11-02T16:00:00Z'", ['3']],
    ["where PrivateNote = 'it\\'s 100%'", ['1']],
    ["where Missing = 'x'", []],
    ['orderby TotalAmt desc', ['3', '2', '1']],
    ['order by TxnDate, DocNumber', ['2', '1', '3']],
    ["WHERE TotalAmt > '9' ORDERBY TxnDate ASC STARTPOSITION 1 MAXRESULTS 5", ['2', '3']],
  ])('a query %s selects the matching objects in order', (condition, ids) => {
    expect(idsOf(condition)).toEqual(ids)
  })

  it.each([
    "where Id = '1' or Id = '2'",
    'where Id',
    "where Id == '1'",
    "where 'Id' = '1'",
    "where Id in '1'",
    "where Id in ('1'",
    "where Id = '1",
    "where Id = '1' and",
    'orderby',
    'startposition one',
    "; drop table 'x'",
  ])('a query %s is rejected', (condition) => {
    expect(idsOf(condition)).toBeNull()
  })

  it('a query omits inactive objects unless one of its conditions names Active', () => {
    const customers = [{ Id: '1', Active: false }, { Id: '2' }, { Id: '3', Active: true }]
    expect(idsOf('', customers, 'Customer')).toEqual(['2', '3'])
    expect(idsOf('where Active in (true, false)', customers, 'Customer')).toEqual(['1', '3'])
  })
})

it('a query returns at most 1,000 results, and at most 100 if it has no maxresults', () => {
  expect(parseQuery('select * from Bill')).toMatchObject({ startPosition: 1, maxResults: 100 })
  expect(parseQuery('select * from Bill startposition 5 maxresults 5000')).toMatchObject({
    startPosition: 5,
    maxResults: 1_000,
  })
})

it.each([
  'select from Invoice',
  'select Id, from Invoice',
  'select Id DocNumber from Invoice',
  "select 'Id' from Invoice",
  'select count(Id) from Invoice',
])('the statement %s is rejected', (statement) => {
  expect(parseQuery(statement)).toBeNull()
})

it('the query parser does not throw an error, whatever the statement is', () => {
  const words = constantFrom(
    ...`select * count ( ) from where and in like orderby , 'a' '\\'' <= = Id 1 -1.5 true maxresults`.split(
      ' ',
    ),
  )
  holds(
    property(array(words, { maxLength: 20 }), string(), (tokens, noise) => {
      expect(() => parseQuery(tokens.join(' '))).not.toThrow()
      expect(() => parseQuery(`select * from Invoice where Id = ${noise}`)).not.toThrow()
    }),
    { seed: 5, numRuns: 2_000 },
  )
})
