import { expect, it } from 'vitest'
import { TransactionEvent } from './events.ts'

const event = {
  Process: 'Orders',
  TransactionID: '1',
  ReplayID: 0,
  Status: 'Running',
  StepName: 'order',
  Version: 1,
  At: '2026-01-01T00:00:00.000Z',
}

it.each(['Process', 'TransactionID'])(
  'TransactionEvent rejects an event whose %s has an unpaired surrogate, because no event id can be derived from that member',
  (member) => {
    expect(TransactionEvent.safeParse(event).success).toBe(true)
    const message = JSON.stringify({ ...event, [member]: 'x\uD800' })
    expect(TransactionEvent.safeParse(JSON.parse(message)).success).toBe(false)
  },
)

it('TransactionEvent reads a status that only a later release knows as text', () => {
  expect(TransactionEvent.parse({ ...event, Status: 'Dreaming' }).Status).toBe('Dreaming')
})
