/** The operations on the accounting data of companies: writes, e-mails, queries, batches, change data and reports. */
import { providerEntities } from '@integration-host/shared/contracts/provider-event'
import { asObject } from '@integration-host/shared/json'
import type { Company } from '../company/companies.ts'
import { companyInfo } from '../company/company-info.ts'
import type { Preferences } from '../company/preferences.ts'
import type { BookChange, OnChange } from '../webhooks/notification.ts'
import { type ApiErrorCode, apiErrorDocument } from './api-errors.ts'
import { changeData } from './change-data.ts'
import { type Entity, entityOf } from './entities.ts'
import type { Body, Posted, PostedEntities, PostRequest } from './posted-entities.ts'
import { parseQuery, projected, selected } from './query.ts'
import { reportNamed } from './reports.ts'

/** A response body, or the error of the request. `detail` overrides the default detail of the error. */
export type BooksResult =
  | { readonly document: Body }
  | { readonly error: ApiErrorCode; readonly detail?: string }

/** An edit by a person. Only a creation has no `id`. The entity `Preferences` can be updated only. */
export interface Edit {
  readonly entity: Entity | 'Preferences'
  readonly id: string | null
  readonly operation: 'create' | 'update' | 'void' | 'delete'
  /** The members to change; they replace the members of the object. */
  readonly change: Body
}

export interface BooksDeps {
  readonly posted: PostedEntities
  readonly findCompany: (realm: string) => Company | null
  readonly preferences: Preferences
  /** Returns the time after its creation from which queries return a new object, in milliseconds. */
  readonly visibleAfterMs: () => number
  /** Called after each change of an object whose changes the provider reports by webhook. */
  readonly onChange: OnChange
  /** Called after each successful write of a company, with the kind of its result. */
  readonly onWritten: (realm: string, kind: Exclude<Posted['kind'], 'rejected'>) => void
}

export function createBooks(deps: BooksDeps) {
  const { posted, findCompany, preferences, onChange, onWritten } = deps
  /** Creates, updates, voids or deletes an object. */
  function write(request: PostRequest, body: Body, now: Date): BooksResult {
    const { realm, entity } = request
    const outcome = posted.post(request, body, now)
    if (outcome.kind === 'rejected') return { error: outcome.error }
    const { kind, document, settled } = outcome
    if (request.isByPerson !== true) onWritten(realm, kind)
    if (kind === 'played-back') return { document }
    // The time of the changes equals the time in the response.
    const changedAt = Date.parse(String(document['time']))
    const { Id } = document[entity] as { readonly Id: string }
    const operation = request.operation === 'send' ? 'emailed' : OPERATIONS[kind]
    notify(realm, { entity, id: Id }, operation, changedAt)
    for (const transaction of settled) notify(realm, transaction, 'update', changedAt)
    return { document }
  }

  /** Reports the change of an object, unless the provider sends no webhooks for objects of its kind. */
  function notify(
    realm: string,
    { entity: name, id }: { readonly entity: string; readonly id: string },
    operation: BookChange['operation'],
    changedAt: number,
  ): void {
    const entity = providerEntities.find((reported) => reported === name)
    if (entity !== undefined) onChange({ realm, entity, id, operation, changedAt })
  }

  function query(realm: string, statement: string, now: Date): BooksResult {
    const parsed = parseQuery(statement)
    const found = parsed && entitiesOf(realm, parsed.entity, now)
    if (parsed === null || found === null) return { error: '4000' }
    const { isCount, startPosition, maxResults } = parsed
    const all = selected(found.all, found.name, parsed)
    const time = now.toISOString()
    if (isCount) return { document: { QueryResponse: { totalCount: all.length }, time } }
    const page = all
      .slice(startPosition - 1, startPosition - 1 + maxResults)
      .map((one) => projected(one, parsed.members))
    const content =
      page.length === 0 ? {} : { [found.name]: page, startPosition, maxResults: page.length }
    return { document: { QueryResponse: content, time } }
  }

  function entitiesOf(realm: string, name: string, now: Date) {
    if (name.toLowerCase() === 'companyinfo') {
      const company = findCompany(realm)
      return company && { name: 'CompanyInfo', all: [companyInfo(company)] as readonly Body[] }
    }
    if (name.toLowerCase() === 'preferences')
      return { name: 'Preferences', all: [preferences.of(realm)] as readonly Body[] }
    const entity = entityOf(name)
    if (entity === null) return null
    const visibleFrom = now.getTime() - deps.visibleAfterMs()
    const all = posted.list(realm, entity).filter((one) => createdAt(one) <= visibleFrom)
    return { name: entity, all }
  }

  /** Executes an item of a batch. A failed item does not affect the other items. */
  function itemResult(realm: string, requestId: string | null, item: unknown, now: Date): Body {
    const { bId: given, operation, optionsData, Query: statement, ...named } = asObject(item) ?? {}
    const bId = typeof given === 'string' ? given : ''
    const execute = (): BooksResult => {
      const joined = requestId === null ? null : requestId + bId
      if (joined !== null && joined.length > MAX_JOINED) return { error: '2130' }
      if (typeof statement === 'string') return query(realm, statement, now)
      const [[name, content] = ['', null], ...others] = Object.entries(named)
      const entity = entityOf(name)
      if (entity === null || others.length > 0 || !BATCH_OPERATIONS.has(String(operation)))
        return { error: '500' }
      const object = asObject(content)
      if (object === null) return { error: '2010' }
      // In a batch, Intuit voids an object if an update has `optionsData: 'void'`.
      const isVoid = operation === 'update' && optionsData === 'void'
      const request = { realm, entity, operation: isVoid ? 'void' : String(operation) }
      return write({ ...request, requestId: joined }, object, now)
    }
    const result = execute()
    if ('error' in result) return { bId, ...apiErrorDocument(result.error) }
    const { time: _, ...content } = result.document
    return { bId, ...content }
  }

  return {
    write,
    /** Sends a transaction by e-mail to `sendTo`, or to its own `BillEmail`. The sandbox only stores that it was sent. */
    send(
      { realm, entity, requestId }: Omit<PostRequest, 'operation'>,
      id: string,
      sendTo: string | null,
      now: Date,
    ): BooksResult {
      const found = posted.find(realm, entity, id)
      if (found === null) return { error: '610' }
      const Address = sendTo ?? asObject(found['BillEmail'])?.['Address']
      if (typeof Address !== 'string')
        return {
          error: '2020',
          detail: 'The transaction has no BillEmail, and there is no sendTo.',
        }
      const body = {
        ...found,
        BillEmail: { Address },
        EmailStatus: 'EmailSent',
        DeliveryInfo: { DeliveryType: 'Email', DeliveryTime: now.toISOString() },
      }
      return write({ realm, entity, requestId, operation: 'send' }, body, now)
    },
    /**
     * Changes an object as a person does in QuickBooks: the current version, also in closed books and with linked
     * payments, and reported by webhook.
     */
    edit(realm: string, { entity, id, operation, change }: Edit, now: Date): BooksResult {
      if (entity === 'Preferences') {
        const document = { Preferences: preferences.edit(realm, change, now) }
        notify(realm, { entity, id: '1' }, 'update', now.getTime())
        return { document }
      }
      const known = id === null ? null : posted.find(realm, entity, id)
      if (id !== null && known === null) return { error: '610' }
      const version = known && { Id: known['Id'], SyncToken: known['SyncToken'], sparse: true }
      const request = { realm, entity, requestId: null, operation, isByPerson: true }
      return write(request, { ...change, ...version }, now)
    },
    query,
    /**
     * Executes several writes and queries.
     *
     * @param requestId the `requestid` of the batch. The `requestid` of an item consists of this value and the `bId` of
     * the item.
     * @see https://developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/batch
     */
    batch(realm: string, requestId: string | null, body: Body, now: Date): BooksResult {
      const { BatchItemRequest: items } = body
      if (requestId !== null && requestId.length > MAX_JOINED) return { error: '2130' }
      if (!Array.isArray(items)) return { error: '2010' }
      if (items.length > MAX_BATCH_ITEMS) return { error: '1040' }
      const results = items.map((item: unknown) => itemResult(realm, requestId, item, now))
      return { document: { BatchItemResponse: results, time: now.toISOString() } }
    },
    changes: (realm: string, given: Parameters<typeof changeData>[2], now: Date): BooksResult =>
      changeData(posted, realm, given, now),
    report(
      realm: string,
      name: string,
      parameters: Readonly<Record<string, string>>,
      now: Date,
    ): BooksResult {
      const report = reportNamed(name)
      if (report === null) return { error: '500' }
      return { document: report(posted, realm, parameters, now) }
    },
  }
}

export type Books = ReturnType<typeof createBooks>

const MAX_BATCH_ITEMS = 30
/** Intuit joins the `requestid` of a batch with the `bId` of each item. Both together may have this many characters. */
const MAX_JOINED = 50
const BATCH_OPERATIONS = new Set(['create', 'update', 'delete', 'void'])

const createdAt = ({ MetaData }: Body): number =>
  Date.parse(String(asObject(MetaData)?.['CreateTime']))

const OPERATIONS = {
  created: 'create',
  updated: 'update',
  deleted: 'delete',
  voided: 'void',
} as const
