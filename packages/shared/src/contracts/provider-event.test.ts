import { expect, it } from 'vitest'
import { type ProviderEvent, providerEventId, providerRoutingKey } from './provider-event.ts'

const change = {
  Provider: 'intuit',
  Realm: '9341453908059889',
  Entity: 'Invoice',
  EntityId: '129',
  Operation: 'update',
  ChangedAt: '2026-11-23T17:05:09Z',
} satisfies Partial<ProviderEvent>

it('providerEventId() returns the same id for every spelling of the time of a change', () => {
  const id = 'Invoice-129@2026-11-23T17:05:09Z/9341453908059889'
  expect(providerEventId(change)).toBe(id)
  expect(providerEventId({ ...change, ChangedAt: '2026-11-23T17:05:09.179851517Z' })).toBe(id)
  expect(providerEventId({ ...change, ChangedAt: '2026-11-23T09:05:09-08:00' })).toBe(id)
})

it('providerEventId() returns the same id for a creation and an update in the same second', () => {
  expect(providerEventId({ ...change, Operation: 'create' })).toBe(providerEventId(change))
})

it('providerEventId() returns different ids for a deletion and an update in the same second', () => {
  expect(providerEventId({ ...change, Operation: 'delete' })).not.toBe(providerEventId(change))
})

it('providerEventId() returns ids of at most 128 characters', () => {
  const longest = {
    ...change,
    Entity: 'PaymentMethod',
    EntityId: '9'.repeat(20),
    Operation: 'delete',
    Realm: 'r'.repeat(64),
  } as const
  expect(providerEventId(longest).length).toBeLessThanOrEqual(128)
})

it('providerRoutingKey() returns the routing key of an event', () => {
  expect(providerRoutingKey(change)).toBe('intuit.Invoice.update')
})
