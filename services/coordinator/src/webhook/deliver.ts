/**
 * The built-in process that delivers webhooks. Each run delivers one webhook to one receiver.
 *
 * W1  A webhook is delivered at least once: a run is completed only after the receiver has responded with 2xx.
 * W2  The webhooks of one company to one receiver are delivered in order: the transaction source queues the run of a
 *     webhook only after every earlier webhook was delivered or has failed.
 * W3  Each replica sends a failing receiver at most two calls at a time, and each call has a time limit. Therefore a
 *     failing receiver cannot occupy the worker. Further webhooks to this receiver wait, and the wait does not count as
 *     an attempt.
 */
import { failed } from '../step/built-in.ts'
import { defineProcess } from '../step/define-process.ts'
import type { ProcessDefinition } from '../step/definition.ts'
import { NO_RESPONSE, type StepOutcome } from '../run/progress.ts'
import type { RetryPolicy } from '../run/retry-policy.ts'
import type { StepAbort } from '../step/step-abort.ts'
import type { Claim } from '../run/transaction-source.ts'
import type { Receiver } from './receivers.ts'
import { Notice } from './webhook.ts'
import { createHmac } from 'node:crypto'
import type { Secret } from '@integration-host/shared/secrets/secret'
import {
  WEBHOOK_PROCESS,
  WEBHOOK_STEP,
  type WebhookBody,
} from '@integration-host/shared/contracts/events'

/** The port to the receivers: sends one POST request and follows no redirect. */
export type PostWebhook = (request: {
  readonly url: URL
  /** Whether the settings allow the host by name. The address of such a host may be in a private network. */
  readonly isAllowedByName: boolean
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly abort: StepAbort
}) => Promise<PostResult>

export type PostResult =
  | { readonly kind: 'responded'; readonly status: number; readonly retryAfterMs: number | null }
  | { readonly kind: 'aborted' }
  /** `reason` is a short code such as `ECONNREFUSED`. */
  | { readonly kind: 'failed'; readonly reason: string; readonly isSent: boolean }
  /** The host name resolves to an address in a private network, so no request was sent. */
  | { readonly kind: 'private_address' }

export interface DeliveryDeps {
  readonly receivers: () => readonly Receiver[]
  readonly post: PostWebhook
  /** Returns epoch ms. */
  readonly now: () => number
  readonly random: () => number
  readonly timing?: WebhookTiming
}

/** Times that replace the defaults. Tests set shorter ones. */
export interface WebhookTiming {
  readonly retry?: Partial<RetryPolicy>
  /** The minimum time that a webhook waits if its receiver is unknown or has the maximum number of calls in flight. */
  readonly busyMs?: { readonly healthy: number; readonly failing: number }
}

/** The age of an event after which its webhook is no longer retried. */
const MAX_AGE_MS = 72 * 3_600_000
/** The minimum number of attempts of a webhook. It also applies to an old webhook whose run was resumed. */
const MIN_ATTEMPTS = 5
const RETRY = { maxAttempts: 100_000, baseMs: 5_000, capMs: 300_000 }
const MAX_RETRY_AFTER_MS = 3_600_000
/**
 * The age of an event after which an unknown receiver counts as removed. Until then it may be a new receiver: another
 * replica may have read the changed webhooks file earlier than this one.
 */
const REMOVED_AFTER_MS = 15 * 60_000
/** The maximum number of concurrent calls to a receiver, by whether the last one succeeded. */
const MAX_CALLS = { healthy: 32, failing: 2 }
const BUSY_MS = { healthy: 500, failing: 30_000 }
/** The status with which a receiver reports that its address is gone permanently (RFC 9110 §15.5.11). */
const GONE = 410

/** Builds the process `Webhook`. */
export function createWebhookProcess(deps: DeliveryDeps): ProcessDefinition {
  const { receivers, post, now, random, timing: { retry, busyMs = BUSY_MS } = {} } = deps
  const calls = new Map<string, { inFlight: number; isFailing: boolean }>()

  async function deliver({ run }: Claim, abort: StepAbort): Promise<StepOutcome> {
    const notice = Notice.safeParse(run.InitialData).data
    if (notice === undefined)
      return failed('webhook_invalid', 'the initial data of the run is not that of a webhook')
    const ageMs = now() - Date.parse(notice.At)
    const receiver = receivers().find(({ id }) => id === notice.Receiver)
    if (receiver === undefined) {
      const error = `WEBHOOKS_FILE has no receiver ${notice.Receiver} any more`
      return ageMs < REMOVED_AFTER_MS
        ? { kind: 'later', delayMs: busyMs.failing * (1 + random()), error }
        : failed('webhook_receiver_removed', error)
    }
    const state = calls.get(receiver.id) ?? { inFlight: 0, isFailing: false }
    calls.set(receiver.id, state)
    const health = state.isFailing ? 'failing' : 'healthy'
    if (state.inFlight >= MAX_CALLS[health])
      return {
        kind: 'later',
        delayMs: busyMs[health] * (1 + random()),
        error: `${receiver.id} has ${state.inFlight} other webhooks in flight`,
      }
    state.inFlight += 1
    try {
      const result = await send(notice, run.Realm, receiver, abort)
      if (result.kind === 'aborted') return { kind: 'released' }
      state.isFailing = !isDelivered(result)
      return outcomeOf(result, receiver.id, {
        mayRetry: run.Attempt < MIN_ATTEMPTS || ageMs < MAX_AGE_MS,
      })
    } finally {
      state.inFlight -= 1
    }
  }

  async function send(...of: Parameters<typeof requestOf>): Promise<PostResult | Thrown> {
    try {
      return await post(requestOf(...of))
    } catch (error) {
      return { kind: 'threw', name: error instanceof Error ? error.name : 'Error' }
    }
  }

  function requestOf(notice: Notice, realm: string | null, receiver: Receiver, abort: StepAbort) {
    const content: WebhookBody = {
      type: notice.Type,
      timestamp: new Date(notice.At).toISOString(),
      data: { Realm: realm, ...notice.Data },
    }
    const body = JSON.stringify(content)
    const { url, isAllowedByName, key } = receiver
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'integration-host',
      ...signedHeaders({ key, id: notice.MessageID, body }, now()),
    }
    return { url, isAllowedByName, headers, body, abort }
  }

  return {
    ...defineProcess(WEBHOOK_PROCESS, {
      retry: { ...RETRY, ...retry },
      stepTimeoutSeconds: 60,
    }).step(WEBHOOK_STEP, (step) => step.complete()),
    runBuiltIn: (claim, { abort }) => deliver(claim, abort),
  }
}

/** An attempt that threw. Only the name of what was thrown is kept, because a message may contain the URL. */
interface Thrown {
  readonly kind: 'threw'
  readonly name: string
}

const isDelivered = (result: PostResult | Thrown): boolean =>
  result.kind === 'responded' && result.status >= 200 && result.status < 300

/**
 * Returns the outcome of an attempt. Every response other than 2xx and 410 is retried: a receiver that is being
 * repaired or moved may respond with any status, even with 404 or a redirect. The error contains no path, because the
 * path may be secret.
 */
function outcomeOf(
  result: Exclude<PostResult, { kind: 'aborted' }> | Thrown,
  receiver: string,
  { mayRetry }: { readonly mayRetry: boolean },
): StepOutcome {
  const response = result.kind === 'responded' ? { status: result.status, body: '' } : null
  if (isDelivered(result)) return { kind: 'completed', response, data: null, endsRun: true }
  const { errorClass, error } = describe(result, receiver)
  const isGone = result.kind === 'responded' && result.status === GONE
  if (isGone || !mayRetry) return { kind: 'failed', errorClass, error, response }
  const asked = result.kind === 'responded' ? result.retryAfterMs : null
  const retryAfterMs =
    asked === null ? null : Math.min(Math.max(asked, RETRY.baseMs), MAX_RETRY_AFTER_MS)
  return { kind: 'retry', errorClass, error, response, retryAfterMs }
}

function describe(result: Exclude<PostResult, { kind: 'aborted' }> | Thrown, receiver: string) {
  switch (result.kind) {
    case 'responded':
      return {
        errorClass: `http_${result.status}`,
        error: `the receiver ${receiver} responded with ${result.status}`,
      }
    case 'failed':
      return {
        errorClass: result.isSent ? NO_RESPONSE : 'network',
        error: `the receiver ${receiver} ${result.isSent ? 'did not respond' : 'cannot be reached'}: ${result.reason}`,
      }
    case 'private_address':
      return {
        errorClass: 'webhook_address_refused',
        error: `the receiver ${receiver} has an address of a private network, which WEBHOOKS_ALLOWED_HOSTS does not name`,
      }
    case 'threw':
      return {
        errorClass: 'step_threw',
        error: `the request to the receiver ${receiver} ended with an exception: ${result.name}`,
      }
  }
}

/**
 * Returns the headers of one attempt to deliver a webhook.
 *
 * @param id - the same in every attempt; it contains no full stop, because full stops separate the signed parts
 * @param nowMs - the time of the attempt, epoch ms. Receivers reject an old time, so that an attacker who has recorded
 *   a webhook cannot send it again later.
 */
export function signedHeaders(
  { key, id, body }: { readonly key: Secret; readonly id: string; readonly body: string },
  nowMs: number,
): Readonly<Record<string, string>> {
  const timestamp = String(Math.floor(nowMs / 1_000))
  const signature = createHmac('sha256', Buffer.from(key.reveal(), 'base64'))
    .update(`${id}.${timestamp}.${body}`)
    .digest('base64')
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`,
  }
}
