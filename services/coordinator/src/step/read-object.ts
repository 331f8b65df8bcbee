import { credentialName } from '@integration-host/shared/contracts/realm'
import { DOCUMENT_LIMITS, parseJson } from '@integration-host/shared/json'
import type { WatchedObject } from '../run/events.ts'
import type { BookObject } from './change-place.ts'
import { type EarlyOutcome, judgeCall, shortText } from './judge-call.ts'
import { type Calling, type SendDeps, sendCall } from './send-call.ts'

/** An object of a company, `null` if it does not exist, or the outcome with which the attempt ends. */
export type Reading = { readonly object: BookObject | null } | { readonly end: EarlyOutcome }

/** Intuit's code of the error for an object that does not exist. */
const NOT_FOUND = '610'

/** Reads an object of a company through the gateway, for a step of a built-in process. */
export async function readObject(
  { realm, entity, id }: WatchedObject,
  { process, run }: Pick<Calling, 'process' | 'run'>,
  deps: SendDeps,
): Promise<Reading> {
  const request = { url: `/v3/company/${realm}/${entity.toLowerCase()}/${id}` }
  const options = { credential: credentialName(realm) }
  const sent = await sendCall(
    { process, run, request, options, callKey: null, isEnded: () => false },
    deps,
  )
  if ('end' in sent) return sent
  const { outcome, what, owner } = sent
  const judged = await judgeCall(outcome, what, owner, deps)
  if ('kind' in judged) {
    const body = judged.kind === 'failed' ? (judged.response?.body ?? '') : ''
    return judged.kind === 'failed' && deps.gateway.faultOf(body)?.code === NOT_FOUND
      ? { object: null }
      : { end: judged.kind === 'failed' ? { ...judged, response: null } : judged }
  }
  const document = parseJson(judged.body, DOCUMENT_LIMITS) as Record<string, unknown> | null
  const object = document?.[entity]
  if (typeof object !== 'object' || object === null || Array.isArray(object)) {
    const error = shortText(`${what} responded with ${judged.status} and another document`)
    return {
      end: {
        kind: 'retry',
        errorClass: 'response_invalid',
        error,
        response: null,
        retryAfterMs: null,
      },
    }
  }
  const found = object as BookObject
  return { object: found['status'] === 'Deleted' ? null : found }
}
