/**
 * Creates an object in the books of a company at most once (`step.createOnce`), whatever ends the attempt.
 *
 * The provider may execute a call that it gets twice. So the object has a mark: the value of a field by which it can be
 * found. The mark is reserved before the call (marks.ts). If an earlier call may have taken effect, the books are queried for
 * the mark before the call is sent again, and only when a new object must be visible to queries:
 *
 * - one object that is new and of no other run: it is ours;
 * - none: the call has had no effect, and is sent again;
 * - several: the run fails in doubt, because each of them may be ours.
 *
 * An object is new if it was created after the mark was reserved. So it does no harm if the field is not unique in older
 * objects.
 */
import { credentialName } from '@integration-host/shared/contracts/realm'
import { ReportedEntityId } from '@integration-host/shared/contracts/provider-event'
import { asObject, DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import {
  type MarkedEntity,
  queryableFields,
} from '@integration-host/shared/provider-profile/queryable-fields'
import type { JsonInput } from '../run/json-normalization.ts'
import type { Response } from '../run/progress.ts'
import type { EarlyOutcome } from '../step/judge-call.ts'
import { failed } from '../step/built-in.ts'
import type { StepRequest } from '../step/step-request.ts'
import type { Mark, MarkHolder, MarkRow, Marks } from './marks.ts'
import {
  type BookObject,
  CLOCK_DIFFERENCE_MS,
  createdAt,
  fieldsOf,
  readObjects,
  syncTokenOf,
  type WrittenObject,
} from './written-objects.ts'

export interface NewObject {
  readonly entity: string
  readonly body: Readonly<Record<string, JsonInput | undefined>>
  readonly mark: { readonly field: string; readonly value: string }
  readonly onExisting: 'fail' | 'adopt'
}

export interface CreateOnceDeps {
  readonly marks: Marks
  /** How long queries may not find a new object after the call that creates it was sent, in ms. */
  readonly visibleAfterMs: number
  /** Whether an earlier attempt of the step is in doubt. */
  readonly isInDoubt: boolean
  /** Called when it is known whether an earlier call may have had an effect. */
  readonly setDoubt: (isInDoubt: boolean) => void
  /** Makes a call that only reads. Ends the step if the call fails. */
  readonly read: (request: StepRequest, options: Credential) => Promise<Response>
  /** Makes the call that creates the object. Ends the step if the call fails. */
  readonly write: (request: StepRequest, options: Credential) => Promise<Response>
  readonly end: (outcome: EarlyOutcome) => never
  readonly onWritten: (written: readonly WrittenObject[]) => void
  /** Called if the new object has another value than the mark. */
  readonly onMarkLost: (object: { readonly entity: string; readonly id: string }) => void
}

interface Credential {
  readonly credential: string
}

/** The new object, as the response to the call that creates it contains it: `{"Invoice": {…}}`. */
export interface CreatedObject {
  readonly response: Response
  readonly id: string
  readonly syncToken: string | null
}

/** How soon an object is looked for again that another run is creating. */
const RECHECK_MS = 15_000
const MAX_NAMED = 10

/** @throws {TypeError} if the arguments cannot be those of `createOnce`. */
export async function createOnce(
  realm: string | null,
  by: MarkHolder,
  given: NewObject,
  deps: CreateOnceDeps,
): Promise<CreatedObject> {
  const { entity, body, onExisting } = given
  const { field, value } = checkedMark(given)
  const { marks, end } = deps
  if (realm === null) return end(failed('realm_missing', NO_REALM))
  const mark: Mark = { realm, entity, field, value }
  const path = `/v3/company/${realm}/${entity.toLowerCase()}`
  const credential = { credential: credentialName(realm) }
  const what = `the ${entity} with this ${field}`

  const reservation = await marks.reserve(mark, by)
  if (reservation.kind === 'taken') return existing(reservation)
  const { row, isNew } = reservation
  if (row.EntityID !== null) return byId(row.EntityID)
  deps.setDoubt(deps.isInDoubt && !isNew)
  if (deps.isInDoubt && !isNew) {
    const ours = await afterDoubt(row)
    deps.setDoubt(false)
    if (ours !== null) return ours
  }
  if (onExisting === 'adopt') {
    const adopted = await adoptable(row)
    if (adopted !== null) return adopted
  }
  if (!isNew || onExisting === 'adopt') await marks.update(row)
  return send()

  async function send(): Promise<CreatedObject> {
    const request = {
      url: path,
      method: 'POST',
      // The gateway must not repeat the call, because the provider may execute it twice.
      headers: { 'Send-Once': 'true' },
      body: { ...body, [field]: value },
    }
    const response = await deps.write(request, credential)
    const made = readObjects(response.body).find((one) => one.entity === entity)
    if (made === undefined) {
      const error = `the response to the creation of ${what} contains no ${entity} with an Id`
      return end({ ...failed('response_invalid', error), response, isInDoubt: true })
    }
    if (made.object[field] !== value) deps.onMarkLost(made)
    return { response, id: made.id, syncToken: syncTokenOf(made) }
  }

  /** Returns the objects that have the mark, as far as queries show them. */
  async function withMark(): Promise<readonly BookObject[]> {
    const query = `select * from ${entity} where ${field} = '${value.replaceAll(/[\\']/g, '\\$&')}' maxresults 1000`
    const { body: found } = await deps.read(
      { url: `/v3/company/${realm}/query`, query: { query } },
      credential,
    )
    return readObjects(found).filter((one) => one.entity === entity)
  }

  /** Returns the object of an earlier call; `null` if that call has had no effect. */
  async function afterDoubt(known: MarkRow): Promise<CreatedObject | null> {
    const recorded = await marks.createdBy(known)
    if (recorded !== null) return byId(recorded)
    const waitMs = Date.parse(known.SentAt) + deps.visibleAfterMs - (await marks.now())
    if (waitMs > 0)
      return end({
        kind: 'later',
        delayMs: waitMs,
        error: `an earlier call may have created ${what}; the books are queried when it must be visible`,
      })
    const since = Date.parse(known.ReservedAt) - CLOCK_DIFFERENCE_MS
    const recent = (await withMark()).filter((one) => (createdAt(one) ?? Infinity) >= since)
    const ids = recent.map(({ id }) => id)
    const others = await marks.ofOthers({ realm: mark.realm, entity, ids }, by.run)
    const [ours, ...more] = recent.filter(({ id }) => !others.has(id))
    if (ours === undefined) return null
    if (more.length > 0)
      return end({
        ...failed(
          'mark_ambiguous',
          `each of several new objects may be ${what}: ${named([ours, ...more])}`,
        ),
        isInDoubt: true,
      })
    deps.onWritten([written(ours)])
    return created(ours)
  }

  /** Returns an existing object that the run takes over before its first call; `null` if there is none. */
  async function adoptable(known: MarkRow): Promise<CreatedObject | null> {
    const [found, ...more] = await withMark()
    if (found === undefined) return null
    if (more.length > 0)
      return end(
        failed('mark_ambiguous', `several objects have this ${field}: ${named([found, ...more])}`),
      )
    await marks.update(known, found.id)
    return created(found)
  }

  /** Ends the step whose mark belongs to another call, or adopts the object of that call. */
  async function existing({
    row: { Process, TransactionID, ReplayID, StepName },
    id,
    entryId,
  }: Extract<Awaited<ReturnType<Marks['reserve']>>, { kind: 'taken' }>): Promise<CreatedObject> {
    const run = `${Process}/${TransactionID}, replay ${ReplayID}, step ${StepName}`
    if (onExisting === 'fail') {
      const object = id === null ? '' : `: ${entity} ${id}`
      const entry = entryId === null ? '' : `, entry ${entryId}`
      return end(failed('already_exists', `${what} belongs to the run ${run}${object}${entry}`))
    }
    if (id !== null) return byId(id)
    const error = `the run ${run} is creating ${what}`
    return end({ kind: 'later', delayMs: RECHECK_MS, error })
  }

  async function byId(id: string): Promise<CreatedObject> {
    const response = await deps.read({ url: `${path}/${encodeURIComponent(id)}` }, credential)
    const found = readObjects(response.body).find((one) => one.id === id)
    if (found !== undefined) return { response, id, syncToken: syncTokenOf(found) }
    const error = `${entity} ${id} could not be read: the response has no such object`
    return end({ ...failed('response_invalid', error), response })
  }

  function created(found: BookObject): CreatedObject {
    const document = JSON.stringify({ [entity]: found.object })
    const response = { status: 200, body: document }
    return { response, id: found.id, syncToken: syncTokenOf(found) }
  }
  function written(found: BookObject): WrittenObject {
    const syncToken = syncTokenOf(found)
    const fields = fieldsOf(sentBody(), found.object)
    return { realm: mark.realm, entity, id: found.id, operation: 'create', syncToken, fields }
  }
  function sentBody(): Readonly<Record<string, unknown>> {
    const text = JSON.stringify({ ...body, [field]: value })
    return asObject(parseJson(text, DOCUMENT_LIMITS)) ?? {}
  }
}

const NO_REALM = 'createOnce needs the company of the run, but the run has no Realm'

const named = (objects: readonly BookObject[]): string =>
  objects
    .slice(0, MAX_NAMED)
    .map(({ id }) => ReportedEntityId.parse(id))
    .join(', ') + (objects.length > MAX_NAMED ? ', …' : '')

/** @throws {TypeError} */
function checkedMark({ entity, body, mark, onExisting }: NewObject): NewObject['mark'] {
  const fields: Readonly<Record<string, number>> | undefined = Object.hasOwn(
    queryableFields,
    entity,
  )
    ? queryableFields[entity as MarkedEntity]
    : undefined
  if (fields === undefined)
    throw new TypeError(`createOnce: ${entity} has no field by which it can be found`)
  if (asObject(body) === null) throw new TypeError('createOnce needs the object to create')
  const { field, value } = mark
  const maxLength = Object.hasOwn(fields, field) ? fields[field] : undefined
  if (maxLength === undefined)
    throw new TypeError(
      `createOnce: the mark of ${entity} is ${Object.keys(fields).join(' or ')}, and not ${field}`,
    )
  if (typeof value !== 'string' || value.trim() === '' || /\p{Cc}/u.test(value))
    throw new TypeError(`createOnce: ${field} must be a text with visible characters`)
  if (value.length > maxLength)
    throw new TypeError(`createOnce: ${field} has more than ${maxLength} characters`)
  if (body[field] !== undefined && body[field] !== value)
    throw new TypeError(`createOnce: the body has another ${field} than the mark`)
  if (body['Id'] !== undefined) throw new TypeError('createOnce: a new object has no Id')
  if (!['fail', 'adopt'].includes(onExisting))
    throw new TypeError("createOnce: onExisting is 'fail' or 'adopt'")
  return { field, value }
}
