import { ProviderEvent } from '@integration-host/shared/contracts/provider-event'
import { describe, expect, it } from 'vitest'
import type { ReadObject } from './feed-document.ts'
import { eventsOf } from './feed-events.ts'

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
