import { expect, it } from 'vitest'
import type { PayloadPlace } from './payload.ts'
import { createRecentPayloads } from './recent-payloads.ts'

const place: PayloadPlace = {
  Process: 'OrderProcess',
  TransactionID: 'order-1',
  ReplayID: 0,
  column: 'Data',
  step: 'order',
}

it('the cache of recent payloads finds a payload for the same column and step, also in a later run of the transaction', () => {
  const recent = createRecentPayloads()
  recent.add('sealed', place, 'text')
  expect(recent.find('sealed', place)).toBe('text')
  expect(recent.find('sealed', { ...place, ReplayID: 2 })).toBe('text')
})

it.each<Partial<PayloadPlace>>([
  { Process: 'OtherProcess' },
  { TransactionID: 'order-2' },
  { column: 'ResponseBody' },
  { step: 'report' },
])(
  'a cached payload is not found for another process, transaction, column or step: %j',
  (other) => {
    const recent = createRecentPayloads()
    recent.add('sealed', place, 'text')
    expect(recent.find('sealed', { ...place, ...other })).toBeUndefined()
  },
)

it('when a generation of the cache of recent payloads is full, the previous generation is dropped', () => {
  const recent = createRecentPayloads(20)
  const names = ['one', 'two', 'six', 'ten']
  for (const sealed of names) recent.add(sealed, place, 'text')
  expect(names.map((sealed) => recent.find(sealed, place))).toEqual(Array(4).fill('text'))
  recent.add('new', place, 'text')
  expect(names.map((sealed) => recent.find(sealed, place))).toEqual([
    undefined,
    undefined,
    'text',
    'text',
  ])
})

it('a payload that alone exceeds the maximum length is not cached, and other payloads stay in the cache', () => {
  const recent = createRecentPayloads(10)
  recent.add('one', place, 'text')
  recent.add('two', place, 'a longer text')
  expect(recent.find('two', place)).toBeUndefined()
  expect(recent.find('one', place)).toBe('text')
})
