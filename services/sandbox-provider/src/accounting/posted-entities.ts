import { asObject } from '@integration-host/shared/json'
import type { ApiErrorCode } from './api-errors.ts'
import { type BookRules, forbidden, openBooks } from './book-rules.ts'
import {
  afterPayment,
  balancesOf,
  linksOf,
  paymentsOf,
  sales,
  voided,
  withComputed,
  withoutLinkTo,
} from './computed.ts'
import { type Entity, uniqueNames } from './entities.ts'

export type Body = Readonly<Record<string, unknown>>

export type Posted =
  /** The response body, with the stored entity under its type name: `{ Invoice: {…}, time }`. */
  | {
      readonly kind: 'created' | 'updated' | 'deleted' | 'voided' | 'played-back'
      readonly document: Body
      /** The transactions whose balance the request has changed, because it has changed a payment of them. */
      readonly settled: readonly Changed[]
    }
  | { readonly kind: 'rejected'; readonly error: ApiErrorCode }

/** A stored object that a request has changed. */
export interface Changed {
  readonly entity: Entity
  readonly id: string
}

export interface PostRequest {
  readonly realm: string
  readonly entity: Entity
  readonly requestId: string | null
  /**
   * The requested operation. `delete` and `void` are used as such. Any other value means an update if the body has an
   * `Id`, and a creation if it has none.
   */
  readonly operation: string | null
  /** Whether a person edits the object in QuickBooks, where some rules only warn. */
  readonly isByPerson?: boolean
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
/** The first document number that the provider assigns in a company. */
const FIRST_NUMBER = 1_001

export function createPostedEntities(rules: BookRules = openBooks) {
  const responses = new Map<string, Body>()
  /** The entities by company and id. An id is unique in its company only, as at Intuit. */
  const stored = new Map<string, Stored>()
  /** The deleted entities by company and id. */
  const deletions = new Map<string, Omit<Stored, 'content'> & { readonly content: Body }>()
  /** The last document number of each sequence of a company. */
  const numbers = new Map<string, number>()
  const lastIds = new Map<string, number>()
  const keyOf = (realm: string, id: string): string => `${realm}/${id}`

  function find(realm: string, entity: Entity, id: unknown): Stored | null {
    const found = typeof id === 'string' ? stored.get(keyOf(realm, id)) : undefined
    return found?.entity === entity ? found : null
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
    stored.set(keyOf(realm, content.Id), { realm, entity, content })
    forgetOldest(stored, STORED_ENTITIES)
  }

  const list = (realm: string, entity: Entity): readonly Body[] =>
    [...stored.values()]
      .filter((one) => one.realm === realm && one.entity === entity)
      .map(({ content }) => content)

  /** Returns objects of a kind as clients see them: customers and vendors with their open balance. */
  function seen(realm: string, entity: Entity, contents: readonly Body[]): readonly Body[] {
    if (entity !== 'Customer' && entity !== 'Vendor') return contents
    const balances = balancesOf((kind) => list(realm, kind))
    return contents.map((content) =>
      content['status'] === 'Deleted'
        ? content
        : { ...content, Balance: balances.get(String(content['Id'])) ?? 0 },
    )
  }
  const documentOf = ({ realm, entity }: PostRequest, content: Body, time: string): Body => ({
    [entity]: seen(realm, entity, [content])[0],
    time,
  })

  const findIn =
    (realm: string) =>
    (entity: Entity, id: unknown): Body | null =>
      find(realm, entity, id)?.content ?? null

  /** Returns the content of an object with the members that the provider computes. */
  function computed({ realm, entity }: PostRequest, given: Body, previous: Body, now: Date): Body {
    const key = `${realm}/${entity === 'Estimate' ? entity : 'Invoice'}`
    const last = numbers.get(key) ?? FIRST_NUMBER - 1
    const nextNumber = (): string => String(last + 1)
    const content = withComputed(entity, given, { now, previous, find: findIn(realm), nextNumber })
    const number = /^\d{1,9}$/.test(String(content['DocNumber'])) ? Number(content['DocNumber']) : 0
    if (sales.has(entity) && number > last) numbers.set(key, number)
    return content
  }

  /**
   * Changes the transactions that a payment settled before it was changed, or settles now. Each of them becomes a new
   * version, as at Intuit.
   */
  function settle({ realm, entity }: PostRequest, before: Body, after: Body, now: Date): Changed[] {
    const settled = new Set(linksOf(entity, after).map(({ id }) => id))
    const links = new Map(
      [...linksOf(entity, before), ...linksOf(entity, after)].map((link) => [link.id, link]),
    )
    return [...links.values()].flatMap(({ entity: kind, id }) => {
      const open = find(realm, kind, id)
      if (open === null) return []
      const payment = { entity, content: { ...before, ...after }, isSettled: settled.has(id) }
      const content = {
        ...afterPayment(open, payment, findIn(realm)),
        ...nextVersion(open.content, now),
      }
      stored.set(keyOf(realm, id), { ...open, content })
      return [{ entity: kind, id }]
    })
  }

  /** Removes a voided or deleted transaction from the payments that settled it. Their amount becomes unapplied. */
  function release({ realm, entity }: PostRequest, removed: Stored['content'], now: Date) {
    return paymentsOf(removed).flatMap(({ entity: kind, id }) => {
      const payment = find(realm, kind, id)
      if (payment === null) return []
      const left = withoutLinkTo(payment.content, { entity, id: removed.Id })
      const request = { realm, entity: kind, requestId: null, operation: null }
      const content = {
        ...computed(request, left, payment.content, now),
        ...nextVersion(payment.content, now),
      }
      stored.set(keyOf(realm, id), { ...payment, content })
      return [{ entity: kind, id }]
    })
  }

  /** Returns the error of a change that the rules of the books forbid; `null` if it is allowed. */
  const rejection = (request: PostRequest, before: Body | null, after: Body | null) =>
    forbidden(
      { ...request, isByPerson: request.isByPerson === true, before, after },
      rules.closedUntil(request.realm),
    )

  function create(request: PostRequest, body: Body, now: Date): Posted {
    const { Id: _, ...given } = body
    if (isNameTaken(request, given)) return { kind: 'rejected', error: '6240' }
    const at = now.toISOString()
    const members = computed(request, given, {}, now)
    const error = rejection(request, null, members)
    if (error !== null) return { kind: 'rejected', error }
    const id = (lastIds.get(request.realm) ?? 0) + 1
    lastIds.set(request.realm, id)
    const content = {
      ...members,
      domain: 'QBO',
      sparse: false,
      Id: String(id),
      SyncToken: '0',
      MetaData: { CreateTime: at, LastUpdatedTime: at },
    }
    store(request, content)
    const settled = settle(request, {}, content, now)
    return { kind: 'created', document: documentOf(request, content, at), settled }
  }

  function change(request: PostRequest, body: Body, now: Date): Posted {
    const known = find(request.realm, request.entity, body['Id'])
    if (known === null) return { kind: 'rejected', error: '610' }
    if (body['SyncToken'] === undefined) return { kind: 'rejected', error: '2020' }
    const { Id, SyncToken } = known.content
    if (body['SyncToken'] !== SyncToken) return { kind: 'rejected', error: '5010' }
    const at = now.toISOString()
    if (request.operation === 'delete') {
      const error = rejection(request, known.content, null)
      if (error !== null) return { kind: 'rejected', error }
      stored.delete(keyOf(request.realm, Id))
      const deleted = { domain: 'QBO', status: 'Deleted', Id }
      const { realm, entity } = known
      const content = { ...deleted, MetaData: { LastUpdatedTime: at } }
      deletions.set(keyOf(realm, Id), { realm, entity, content })
      forgetOldest(deletions, STORED_DELETIONS)
      const settled = [
        ...settle(request, known.content, {}, now),
        ...release(request, known.content, now),
      ]
      return { kind: 'deleted', document: { [request.entity]: deleted, time: at }, settled }
    }
    const isVoid = request.operation === 'void'
    const given = isVoid ? voided(known.content) : body
    // A full update clears the members that the request omits; a sparse update keeps them.
    const merged = { ...(given['sparse'] === true && known.content), ...given, Id }
    const content = {
      ...computed(
        request,
        merged,
        isVoid ? { ...known.content, LinkedTxn: [] } : known.content,
        now,
      ),
      domain: 'QBO',
      sparse: false,
      ...nextVersion(known.content, now),
    }
    const error = rejection(request, known.content, content)
    if (error !== null) return { kind: 'rejected', error }
    if (isNameTaken(request, content)) return { kind: 'rejected', error: '6240' }
    store(request, content)
    const settled = settle(request, known.content, content, now)
    if (isVoid) settled.push(...release(request, known.content, now))
    const kind = isVoid ? 'voided' : 'updated'
    return { kind, document: documentOf(request, content, at), settled }
  }

  return {
    /**
     * Creates an entity, or updates, voids or deletes the entity that the body names by `Id` and `SyncToken`. A change of
     * a payment also changes the balances of the transactions that it settles.
     *
     * If an earlier request of the company with the same `requestId` succeeded, nothing is changed and the first response
     * is returned. Intuit does not document how long a `requestId` is stored, or whether the `requestId` of a failed
     * request may be used again. In this sandbox, it may be used again.
     */
    post(request: PostRequest, body: Body, now: Date): Posted {
      const { realm, requestId, operation } = request
      if (requestId !== null && requestId.length > MAX_REQUEST_ID) {
        return { kind: 'rejected', error: '2130' }
      }
      const key = requestId === null ? null : `${realm}/${requestId}`
      const known = key === null || !rules.playsBackRequestIds() ? undefined : responses.get(key)
      if (known !== undefined) return { kind: 'played-back', document: known, settled: [] }
      const isChange = body['Id'] !== undefined || operation === 'delete' || operation === 'void'
      const outcome = isChange ? change(request, body, now) : create(request, body, now)
      if (key !== null && outcome.kind !== 'rejected') {
        responses.set(key, outcome.document)
        forgetOldest(responses, PLAYED_BACK_REQUESTS)
      }
      return outcome
    },
    find(realm: string, entity: Entity, id: string): Body | null {
      const found = find(realm, entity, id)
      return found === null ? null : (seen(realm, entity, [found.content])[0] ?? null)
    },
    /** Returns the entities of a kind in the order of their ids. */
    list: (realm: string, entity: Entity): readonly Body[] =>
      seen(realm, entity, list(realm, entity)),
    /**
     * Returns the entities of a kind that were changed at or after `since` (epoch milliseconds), sorted by the time of
     * their change. A deleted entity has only its id, its status and the time of its deletion.
     */
    changes(realm: string, entity: Entity, since: number): readonly Body[] {
      const changed = [...stored.values(), ...deletions.values()]
        .filter((one) => one.realm === realm && one.entity === entity)
        .map(({ content }) => ({ content, at: changedAt(content) }))
        .filter(({ at }) => at >= since)
        .toSorted((one, other) => one.at - other.at)
        .map(({ content }) => content)
      return seen(realm, entity, changed)
    },
    reset() {
      responses.clear()
      stored.clear()
      deletions.clear()
      numbers.clear()
      lastIds.clear()
    },
  }
}

export type PostedEntities = ReturnType<typeof createPostedEntities>

/** Returns the members by which the next version of an object differs from `content`. */
const nextVersion = ({ Id, SyncToken, ...content }: Stored['content'], now: Date) => ({
  Id,
  SyncToken: String(Number(SyncToken) + 1),
  MetaData: { ...asObject(content['MetaData']), LastUpdatedTime: now.toISOString() },
})

const changedAt = ({ MetaData }: Body): number =>
  Date.parse(String(asObject(MetaData)?.['LastUpdatedTime']))

const nameOf = (name: unknown): string | undefined =>
  typeof name === 'string' ? name.trim().toLowerCase() : undefined

/** Deletes the oldest entry of a map that has more entries than `limit`. */
export function forgetOldest(map: Map<string, unknown>, limit: number): void {
  const [oldest] = map.keys()
  if (map.size > limit && oldest !== undefined) map.delete(oldest)
}
