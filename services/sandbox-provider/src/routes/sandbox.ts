import { Realm } from '@integration-host/shared/contracts/realm'
import { IntegrationError } from '@integration-host/shared/errors'
import { responses, validate } from '@integration-host/shared/http/service-app'
import { Hono } from 'hono'
import { z } from 'zod'
import { apiErrors } from '../accounting/api-errors.ts'
import { entityOf } from '../accounting/entities.ts'
import { fillBooks } from '../accounting/sample-books.ts'
import type { Books } from '../accounting/books.ts'
import type { PostedEntities } from '../accounting/posted-entities.ts'
import { CountersView } from '../control/counters.ts'
import { Fault } from '../control/faults.ts'
import { SandboxSettings } from '../control/settings.ts'
import type { Provider } from '../provider.ts'
import { operation } from './guards.ts'

const SettingsChange = SandboxSettings.partial()
  .refine((part) => Object.keys(part).length > 0, 'must name a setting')
  .meta({ ref: 'SettingsChange' })
const RealmParam = z.object({ realm: Realm })
const Waiting = z.object({ waiting: z.array(Fault) }).meta({ ref: 'QueuedFaults' })
const Disconnected = z.object({ revoked: z.int(), browserGoesTo: z.url().nullable() })
const MAX_WAITING_FAULTS = 1_000

const ObjectList = z
  .object({
    objects: z
      .array(z.record(z.string(), z.record(z.string(), z.unknown())))
      .max(1_000)
      .describe('objects with one member each, such as { "Customer": { "DisplayName": "Ada" } }'),
  })
  .meta({ ref: 'BookObjects' })

const Edits = z
  .object({
    edits: z
      .array(
        z.strictObject({
          entity: z.string().describe('the kind of object, such as Invoice, or Preferences'),
          id: z.string().min(1).max(32).optional().describe('required except for a creation'),
          operation: z.enum(['create', 'update', 'void', 'delete']).default('update'),
          change: z
            .record(z.string(), z.unknown())
            .default({})
            .describe('the members to change, such as { "PrivateNote": "paid in cash" }'),
        }),
      )
      .min(1)
      .max(1_000),
  })
  .meta({ ref: 'BookEdits' })

/** The routes under `/sandbox`, by which tests and demos control the provider's behaviour and read its counters. */
export function sandboxRoutes(provider: Provider) {
  const { settings, faults, counters, companies, grants, posted, attachments } = provider
  const { disconnectUrl, webhooks, books, preferences } = provider
  const known = (realm: string): string => {
    if (companies.find(realm) === null)
      throw new IntegrationError('not_found', 'the sandbox has no company with this realm')
    return realm
  }
  return new Hono()
    .get(
      '/sandbox/settings',
      operation(
        'getSettings',
        'The settings of the provider’s behaviour',
        responses(SandboxSettings),
      ),
      (c) => c.json(settings.current()),
    )
    .put(
      '/sandbox/settings',
      operation(
        'changeSettings',
        'Change some settings and keep the others; a personality sets all of them',
        responses(SandboxSettings, 'invalid_request'),
      ),
      validate('json', SettingsChange),
      (c) => c.json(settings.change(defined(c.req.valid('json')))),
    )
    .get('/sandbox/faults', operation('listFaults', 'The queued faults', responses(Waiting)), (c) =>
      c.json({ waiting: faults.waiting() }),
    )
    .post(
      '/sandbox/faults',
      operation(
        'queueFault',
        'Queue a fault for the next calls of a target',
        responses({ 201: Waiting }, 'invalid_request'),
      ),
      validate('json', Fault),
      (c) => {
        if (faults.waiting().length >= MAX_WAITING_FAULTS) {
          throw new IntegrationError(
            'invalid_request',
            `at most ${MAX_WAITING_FAULTS} faults can wait`,
          )
        }
        faults.add(c.req.valid('json'))
        return c.json({ waiting: faults.waiting() }, 201)
      },
    )
    .delete(
      '/sandbox/faults',
      operation('deleteFaults', 'Delete the queued faults', responses({ 204: null })),
      (c) => {
        faults.clear()
        return c.body(null, 204)
      },
    )
    .post(
      '/sandbox/realms/:realm/revoke',
      operation(
        'revokeGrants',
        "End the company's grants, as a disconnect by its owner does",
        responses(z.object({ revoked: z.int() }), 'invalid_request', 'not_found'),
      ),
      validate('param', RealmParam),
      (c) => c.json({ revoked: grants.revokeRealm(known(c.req.valid('param').realm)) }),
    )
    .post(
      '/sandbox/companies/:realm/disconnect',
      operation(
        'disconnectCompany',
        'Disconnect the application from the company, as its user does in the accounting product',
        responses(Disconnected, 'invalid_request', 'not_found'),
        '`browserGoesTo` is null without DISCONNECT_URL.',
      ),
      validate('param', RealmParam),
      (c) => {
        const { realm } = c.req.valid('param')
        const revoked = grants.revokeRealm(known(realm))
        return c.json({
          revoked,
          browserGoesTo: disconnectUrl === null ? null : `${disconnectUrl}?realmId=${realm}`,
        })
      },
    )
    .post(
      '/sandbox/realms/:realm/expire',
      operation(
        'expireAccessTokens',
        "Expire the company's access tokens now",
        responses(z.object({ expired: z.int() }), 'invalid_request', 'not_found'),
      ),
      validate('param', RealmParam),
      (c) => c.json({ expired: grants.expireRealm(known(c.req.valid('param').realm)) }),
    )
    .post(
      '/sandbox/companies/:realm/books',
      operation(
        'fillBooks',
        'Create sample objects of sixteen kinds in the books of a company',
        responses(z.object({ created: z.int() }), 'invalid_request', 'not_found'),
      ),
      validate('param', RealmParam),
      (c) => {
        const realm = known(c.req.valid('param').realm)
        return c.json({ created: fillBooks(posted, realm, new Date(provider.now())) })
      },
    )
    .post(
      '/sandbox/companies/:realm/objects',
      operation(
        'createObjects',
        'Create objects in the books of a company',
        responses({ 201: ObjectList }, 'invalid_request', 'not_found'),
        'In the order of the list. No access token is needed, faults have no effect, and no webhook is sent.',
      ),
      validate('param', RealmParam),
      validate('json', ObjectList),
      (c) => {
        const realm = known(c.req.valid('param').realm)
        const { objects } = c.req.valid('json')
        return c.json(
          { objects: createObjects(posted, realm, objects, new Date(provider.now())) },
          201,
        )
      },
    )
    .post(
      '/sandbox/companies/:realm/edits',
      operation(
        'editObjects',
        'Change objects of a company, as a person does in QuickBooks',
        responses(ObjectList, 'invalid_request', 'not_found'),
        'In the order of the list. No access token and no SyncToken is needed, faults have no effect, and webhooks are sent. Closed books and linked payments do not reject a person’s edit. The closing date of the books is set with `{ "entity": "Preferences", "change": { "AccountingInfoPrefs": { "BookCloseDate": "2026-10-31" } } }`.',
      ),
      validate('param', RealmParam),
      validate('json', Edits),
      (c) => {
        const realm = known(c.req.valid('param').realm)
        const { edits } = c.req.valid('json')
        return c.json({ objects: editObjects(books, realm, edits, new Date(provider.now())) })
      },
    )
    .get(
      '/sandbox/counters',
      operation(
        'getCounters',
        'Counters of the calls that the provider received',
        responses(CountersView),
      ),
      (c) => c.json(counters.view()),
    )
    .post(
      '/sandbox/reset',
      operation(
        'resetSandbox',
        'Restore the state and settings of the start; the signing key is kept',
        responses({ 204: null }),
      ),
      (c) => {
        for (const part of [
          settings,
          counters,
          companies,
          grants,
          preferences,
          posted,
          attachments,
        ])
          part.reset()
        faults.clear()
        webhooks?.reset()
        return c.body(null, 204)
      },
    )
}

/** Creates objects, and returns them as they are stored. @throws {IntegrationError} an object is rejected. */
function createObjects(
  posted: PostedEntities,
  realm: string,
  objects: z.output<typeof ObjectList>['objects'],
  now: Date,
): z.output<typeof ObjectList>['objects'] {
  return objects.map((object, index) => {
    const rejected = (reason: string) =>
      new IntegrationError('invalid_request', `objects[${index}]: ${reason}`)
    const [[name, body] = ['', {}], ...others] = Object.entries(object)
    const entity = entityOf(name)
    if (entity === null || others.length > 0)
      throw rejected('must have one member, the name of a kind of object, such as Customer')
    const request = { realm, entity, requestId: null, operation: null }
    const { Id: _, ...given } = body
    const outcome = posted.post(request, given, now)
    if (outcome.kind === 'rejected') throw rejected(apiErrors[outcome.error].message)
    return { [entity]: outcome.document[entity] as Record<string, unknown> }
  })
}

/**
 * Changes objects, and returns them as they are stored. The edits before a rejected one stay.
 *
 * @throws {IntegrationError} an edit is rejected.
 */
function editObjects(
  books: Books,
  realm: string,
  edits: z.output<typeof Edits>['edits'],
  now: Date,
): z.output<typeof ObjectList>['objects'] {
  return edits.map(({ entity: name, id = null, operation: kind, change }, index) => {
    const rejected = (reason: string) =>
      new IntegrationError('invalid_request', `edits[${index}]: ${reason}`)
    const isPreferences = name === 'Preferences' && kind === 'update'
    const entity = isPreferences ? name : entityOf(name)
    if (entity === null) throw rejected('has no kind of object that can be edited so')
    if (!isPreferences && (kind === 'create') !== (id === null))
      throw rejected('must have an id, except for a creation')
    const result = books.edit(realm, { entity, id, operation: kind, change }, now)
    if ('error' in result) throw rejected(result.detail ?? apiErrors[result.error].message)
    return { [entity]: result.document[entity] as Record<string, unknown> }
  })
}

/**
 * Returns a copy of the object without undefined members. When the object is spread into another one, an undefined
 * member would overwrite an existing value.
 */
const defined = <Part extends object>(part: Part) =>
  Object.fromEntries(Object.entries(part).filter(([, value]) => value !== undefined)) as {
    [Key in keyof Part]?: Exclude<Part[Key], undefined>
  }
