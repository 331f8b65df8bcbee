import type { ApiErrorCode } from './api-errors.ts'
import type { Entity } from './entities.ts'
import type { Body, PostedEntities } from './posted-entities.ts'
import { SAMPLE_BOOKS } from './sample-books.ts'

const DAY_MS = 86_400_000

/**
 * Creates the sample objects of a company, and returns their number; 0 if they were created before. A sample object
 * whose name already exists is skipped. The provider does not report these objects by webhook.
 */
export function fillBooks(posted: PostedEntities, realm: string, now: Date): number {
  const isFilled = posted
    .list(realm, 'Account')
    .some(({ Name, AccountType }) => Name === 'Supplies' && AccountType === 'Expense')
  if (isFilled) return 0
  const created = new Map<string, Body>()
  const dateOf = (daysAgo: number): string =>
    new Date(now.getTime() - daysAgo * DAY_MS).toISOString().slice(0, 10)
  const keyOf = (entity: Entity, name: string): string => `${entity}/${name}`
  const referenceTo = (entity: Entity, name: string): Body =>
    created.get(keyOf(entity, name)) ?? { name }
  let count = 0
  for (const { entity, name, body } of SAMPLE_BOOKS) {
    const request = { realm, entity, requestId: null, operation: null }
    const outcome = posted.post(request, body(referenceTo, dateOf), now)
    if (outcome.kind === 'rejected') {
      if (outcome.error !== DUPLICATE_NAME) throw new Error(`sample object: ${outcome.error}`)
      continue
    }
    count += 1
    const { Id } = outcome.document[entity] as { readonly Id: string }
    if (name !== undefined) created.set(keyOf(entity, name), { value: Id, name })
  }
  return count
}

const DUPLICATE_NAME: ApiErrorCode = '6240'
