/**
 * Batch operations: several writes and queries in one request. A failed item does not affect the other items.
 *
 * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/batch
 */
import { asObject } from '@integration-host/shared/json'
import type { ApiErrorCode } from './api-errors.ts'
import { type Entity, entityOf } from './entities.ts'
import type { Body } from './posted-entities.ts'

const MAX_BATCH_ITEMS = 30

export type BatchItem =
  | {
      readonly kind: 'write'
      readonly bId: string
      readonly entity: Entity
      readonly operation: string
      readonly body: Body
    }
  | { readonly kind: 'query'; readonly bId: string; readonly statement: string }
  | { readonly kind: 'rejected'; readonly bId: string; readonly error: ApiErrorCode }

/** Intuit joins the `requestid` of a batch with the `bId` of each item. Both together may have this many characters. */
const MAX_JOINED = 50

/**
 * Returns the items of a batch request, or the error for the whole request.
 *
 * @param requestId the `requestid` of the batch; `null` if it has none
 */
export function batchItems(
  body: Body,
  requestId: string | null,
): readonly BatchItem[] | ApiErrorCode {
  const { BatchItemRequest: items } = body
  if (requestId !== null && requestId.length > MAX_JOINED) return '2130'
  if (!Array.isArray(items)) return '2010'
  if (items.length > MAX_BATCH_ITEMS) return '1040'
  return items
    .map(itemOf)
    .map((item) =>
      requestId !== null && requestId.length + item.bId.length > MAX_JOINED
        ? { kind: 'rejected', bId: item.bId, error: '2130' }
        : item,
    )
}

const OPERATIONS = new Set(['create', 'update', 'delete', 'void'])

function itemOf(item: unknown): BatchItem {
  const { bId, operation, optionsData, Query: statement, ...named } = asObject(item) ?? {}
  const id = typeof bId === 'string' ? bId : ''
  if (typeof statement === 'string') return { kind: 'query', bId: id, statement }
  const [first, ...others] = Object.entries(named)
  const [name, content] = first ?? ['', null]
  const entity = entityOf(name)
  if (entity === null || others.length > 0 || !OPERATIONS.has(String(operation)))
    return { kind: 'rejected', bId: id, error: '500' }
  const object = asObject(content)
  if (object === null) return { kind: 'rejected', bId: id, error: '2010' }
  // In a batch, Intuit voids an object if an update has `optionsData: 'void'`.
  const isVoid = operation === 'update' && optionsData === 'void'
  return {
    kind: 'write',
    bId: id,
    entity,
    operation: isVoid ? 'void' : String(operation),
    body: object,
  }
}
