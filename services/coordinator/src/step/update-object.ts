/**
 * Changes an object in the books of a company (`step.update`).
 *
 * The provider rejects an update that does not name the current version of the object, so the object is read first. If
 * another program changes it between the two calls, the update is sent once more, unless that program has changed the
 * same fields: then a person has to decide.
 */
import { credentialName } from '@integration-host/shared/contracts/realm'
import { asObject, DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import { fieldsOf } from '../entry/written-objects.ts'
import type { JsonInput } from '../run/json-normalization.ts'
import type { Response } from '../run/progress.ts'
import type { EarlyOutcome } from './judge-call.ts'
import type { StepRequest } from './step-request.ts'

export type ObjectChange = Readonly<Record<string, JsonInput | undefined>>

/** The calls of an update. Both end the step if the call fails; `write` returns `null` if the version is outdated. */
export interface UpdateCalls<Written> {
  readonly read: (request: StepRequest, options: { credential: string }) => Promise<Response>
  readonly write: (request: StepRequest, options: { credential: string }) => Promise<Written | null>
  readonly fail: (outcome: EarlyOutcome) => never
}

type Body = Readonly<Record<string, unknown>>

/** Intuit's code for an update that names an outdated version. */
export const STALE_OBJECT = '5010'
const ENTITY = /^[A-Za-z]{1,50}$/
/** The members that an update sets itself. */
const OWN = new Set(['Id', 'SyncToken', 'sparse'])
const MAX_NAMED = 20

/** Sends the update, and returns the response to it. @throws {TypeError} the arguments cannot be those of an update. */
export async function updateObject<Written>(
  realm: string | null,
  { entity, id, change }: { entity: string; id: string; change: ObjectChange },
  { read, write, fail }: UpdateCalls<Written>,
): Promise<Written> {
  if (!ENTITY.test(entity)) throw new TypeError('update needs the name of an entity, as Invoice')
  if (typeof id !== 'string' || id === '') throw new TypeError('update needs the id of the object')
  const names = Object.keys(asObject(change) ?? {})
  if (names.length === 0) throw new TypeError('update needs the members to change')
  const own = names.find((name) => OWN.has(name))
  if (own !== undefined) throw new TypeError(`update sets ${own} itself`)
  // Of a run without a company, the call fails as `realm_missing`.
  const company = realm ?? 'null'
  const options = { credential: credentialName(company) }
  const path = `/v3/company/${company}/${entity.toLowerCase()}`
  const what = `${entity} ${id}`

  async function current(): Promise<Body> {
    const response = await read({ url: `${path}/${encodeURIComponent(id)}` }, options)
    const document = asObject(parseJson(response.body, DOCUMENT_LIMITS))
    const object = asObject(document?.[entity])
    if (object?.['Id'] === id) return object
    const error = `${what} could not be read: the response has no such object`
    return fail({ kind: 'failed', errorClass: 'response_invalid', error, response })
  }
  const send = ({ SyncToken }: Body) =>
    write(
      {
        url: path,
        method: 'POST',
        body: { ...change, Id: id, SyncToken: SyncToken as string, sparse: true },
      },
      options,
    )

  const before = await current()
  const first = await send(before)
  if (first !== null) return first
  const after = await current()
  const touched = touchedFields(change, before, after)
  const second = touched.length === 0 ? await send(after) : null
  if (second !== null) return second
  const why =
    touched.length === 0
      ? `${what} was changed twice while it was updated`
      : `${what} was changed in the books while it was updated: ${named(touched)}`
  return fail({ kind: 'failed', errorClass: 'changed_outside', error: why, response: null })
}

/** Returns the paths of the fields of `change` whose values differ in two versions of an object. */
function touchedFields(change: ObjectChange, before: Body, after: Body): readonly string[] {
  const given = asObject(parseJson(JSON.stringify(change), DOCUMENT_LIMITS)) ?? {}
  const [one, other] = [fieldsOf(given, before), fieldsOf(given, after)]
  return [...new Set([...one.keys(), ...other.keys()])].filter(
    (path) => one.get(path) !== other.get(path),
  )
}

const named = (fields: readonly string[]): string =>
  fields.slice(0, MAX_NAMED).join(', ') + (fields.length > MAX_NAMED ? ', …' : '')
