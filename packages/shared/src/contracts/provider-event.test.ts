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

it('gives a change the same id in every spelling of its time', () => {
  const id = 'Invoice-129@2026-11-23T17:05:09Z/9341453908059889'
  expect(providerEventId(change)).toBe(id)
  expect(providerEventId({ ...change, ChangedAt: '2026-11-23T17:05:09.179851517Z' })).toBe(id)
  expect(providerEventId({ ...change, ChangedAt: '2026-11-23T09:05:09-08:00' })).toBe(id)
})

it('gives an object that was created and one that was updated in the same second one id', () => {
  expect(providerEventId({ ...change, Operation: 'create' })).toBe(providerEventId(change))
})

it('gives the deletion of an object an id of its own', () => {
  expect(providerEventId({ ...change, Operation: 'delete' })).not.toBe(providerEventId(change))
})

it('returns ids of at most 128 characters', () => {
  const longest = {
    ...change,
    Entity: 'PaymentMethod',
    EntityId: '9'.repeat(20),
    Operation: 'delete',
    Realm: 'r'.repeat(64),
  } as const
  expect(providerEventId(longest).length).toBeLessThanOrEqual(128)
})

it('returns the routing key of an event', () => {
  expect(providerRoutingKey(change)).toBe('intuit.Invoice.update')
})
