import { asObject } from '@integration-host/shared/json'
import type { ApiErrorCode } from './api-errors.ts'
import { type Entity, uniqueNames } from './entities.ts'

export type Body = Readonly<Record<string, unknown>>

export type Posted =
  /** The response body, with the stored entity under its type name: `{ Invoice: {…}, time }`. */
  | {
      readonly kind: 'created' | 'updated' | 'deleted' | 'voided' | 'played-back'
      readonly document: Body
    }
  | { readonly kind: 'rejected'; readonly error: ApiErrorCode }

export interface PostRequest {
  readonly realm: string
  readonly entity: Entity
  readonly requestId: string | null
  /**
   * The requested operation. `delete` and `void` are used as such. Any other value means an update if the body has an
   * `Id`, and a creation if it has none.
   */
  readonly operation: string | null
}

export interface PostedEntities {
  /**
   * Creates an entity, or updates, voids or deletes the entity that the body names by `Id` and `SyncToken`.
   *
   * If an earlier request of the company with the same `requestId` succeeded, nothing is changed and the first response
   * is returned. Intuit does not document how long a `requestId` is stored, or whether the `requestId` of a failed
   * request may be used again. In this sandbox, it may be used again.
   */
  post(request: PostRequest, body: Body, now: Date): Posted
  find(realm: string, entity: Entity, id: string): Body | null
  /** Returns the entities of a kind in the order of their ids. */
  list(realm: string, entity: Entity): readonly Body[]
  /**
   * Returns the entities of a kind that were changed at or after `since` (epoch milliseconds), sorted by the time of
   * their change. A deleted entity has only its id, its status and the time of its deletion.
   */
  changes(realm: string, entity: Entity, since: number): readonly Body[]
  reset(): void
}

interface Stored {
  readonly realm: string
  readonly entity: Entity
  readonly content: Body & { readonly Id: string; readonly SyncToken: string }
}

const MAX_REQUEST_ID = 50
// The numbers of stored responses and entities are limited, so that a load test cannot exhaust the memory. When a limit
// is reached, the oldest response or entity is deleted.
const PLAYED_BACK_REQUESTS = 10_000
const STORED_ENTITIES = 10_000
const STORED_DELETIONS = 10_000

export function createPostedEntities(): PostedEntities {
  const responses = new Map<string, Body>()
  /** The entities of all companies by id. Ids are unique across companies. */
  const stored = new Map<string, Stored>()
  /** The deleted entities of all companies by id. */
  const deletions = new Map<string, Omit<Stored, 'content'> & { readonly content: Body }>()
  let lastId = 0

  function find(realm: string, entity: Entity, id: unknown): Stored | null {
    const found = typeof id === 'string' ? stored.get(id) : undefined
    return found?.realm === realm && found.entity === entity ? found : null
  }

  function isNameTaken({ realm, entity }: PostRequest, content: Body): boolean {
    const rule = uniqueNames[entity]
    const name = rule && nameOf(content[rule.member])
    if (rule === undefined || name === undefined) return false
    return [...stored.values()].some(
      (other) =>
        other.realm === realm &&
        rule.among.includes(other.entity) &&
        other.content.Id !== content['Id'] &&
        nameOf(other.content[rule.member]) === name,
    )
  }

  function store({ realm, entity }: PostRequest, content: Stored['content']): void {
    stored.set(content.Id, { realm, entity, content })
    forgetOldest(stored, STORED_ENTITIES)
  }

  function create(request: PostRequest, body: Body, now: Date): Posted {
    const { Id: _, ...given } = body
    if (isNameTaken(request, given)) return { kind: 'rejected', error: '6240' }
    const at = now.toISOString()
    const content = {
      ...given,
      domain: 'QBO',
      sparse: false,
      Id: String(++lastId),
      SyncToken: '0',
      MetaData: { CreateTime: at, LastUpdatedTime: at },
    }
    store(request, content)
    return { kind: 'created', document: { [request.entity]: content, time: at } }
  }

  function change(request: PostRequest, body: Body, now: Date): Posted {
    const known = find(request.realm, request.entity, body['Id'])
    if (known === null) return { kind: 'rejected', error: '610' }
    if (body['SyncToken'] === undefined) return { kind: 'rejected', error: '2020' }
    const { Id, SyncToken, MetaData } = known.content
    if (body['SyncToken'] !== SyncToken) return { kind: 'rejected', error: '5010' }
    const at = now.toISOString()
    if (request.operation === 'delete') {
      stored.delete(Id)
      const deleted = { domain: 'QBO', status: 'Deleted', Id }
      const { realm, entity } = known
      const content = { ...deleted, MetaData: { LastUpdatedTime: at } }
      deletions.set(Id, { realm, entity, content })
      forgetOldest(deletions, STORED_DELETIONS)
      return { kind: 'deleted', document: { [request.entity]: deleted, time: at } }
    }
    if (request.operation === 'void' && !VOIDABLE.has(request.entity))
      return { kind: 'rejected', error: '500' }
    const given = request.operation === 'void' ? voided(known.content) : body
    // A full update clears the members that the request omits; a sparse update keeps them.
    const content = {
      ...(given['sparse'] === true && known.content),
      ...given,
      domain: 'QBO',
      sparse: false,
      Id,
      SyncToken: String(Number(SyncToken) + 1),
      MetaData: { ...(MetaData as object), LastUpdatedTime: at },
    }
    if (isNameTaken(request, content)) return { kind: 'rejected', error: '6240' }
    store(request, content)
    const kind = request.operation === 'void' ? 'voided' : 'updated'
    return { kind, document: { [request.entity]: content, time: at } }
  }

  return {
    post(request, body, now) {
      const { realm, requestId, operation } = request
      if (requestId !== null && requestId.length > MAX_REQUEST_ID) {
        return { kind: 'rejected', error: '2130' }
      }
      const key = requestId === null ? null : `${realm}/${requestId}`
      const known = key === null ? undefined : responses.get(key)
      if (known !== undefined) return { kind: 'played-back', document: known }
      const isChange = body['Id'] !== undefined || operation === 'delete' || operation === 'void'
      const outcome = isChange ? change(request, body, now) : create(request, body, now)
      if (key !== null && outcome.kind !== 'rejected') {
        responses.set(key, outcome.document)
        forgetOldest(responses, PLAYED_BACK_REQUESTS)
      }
      return outcome
    },
    find: (realm, entity, id) => find(realm, entity, id)?.content ?? null,
    list: (realm, entity) =>
      [...stored.values()]
        .filter((one) => one.realm === realm && one.entity === entity)
        .map(({ content }) => content),
    changes: (realm, entity, since) =>
      [...stored.values(), ...deletions.values()]
        .filter((one) => one.realm === realm && one.entity === entity)
        .map(({ content }) => ({ content, at: changedAt(content) }))
        .filter(({ at }) => at >= since)
        .toSorted((one, other) => one.at - other.at)
        .map(({ content }) => content),
    reset() {
      responses.clear()
      stored.clear()
      deletions.clear()
      lastId = 0
    },
  }
}

/** The transactions that can be voided. */
const VOIDABLE = new Set<Entity>([
  'BillPayment',
  'CreditMemo',
  'Invoice',
  'Payment',
  'Purchase',
  'RefundReceipt',
  'SalesReceipt',
  'Transfer',
])

/** Returns a transaction after it was voided: its amounts are zero, and its lines remain. */
const voided = (content: Body): Body => ({
  ...content,
  ...(Array.isArray(content['Line']) && {
    Line: content['Line'].map((line: unknown) => ({ ...asObject(line), Amount: 0 })),
  }),
  TotalAmt: 0,
  Balance: 0,
  PrivateNote: 'Voided',
})

const changedAt = ({ MetaData }: Body): number =>
  Date.parse(String(asObject(MetaData)?.['LastUpdatedTime']))

const nameOf = (name: unknown): string | undefined =>
  typeof name === 'string' ? name.trim().toLowerCase() : undefined

function forgetOldest(map: Map<string, unknown>, limit: number): void {
  const [oldest] = map.keys()
  if (map.size > limit && oldest !== undefined) map.delete(oldest)
}
