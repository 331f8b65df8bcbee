import { z } from 'zod'

/**
 * The errors that callers can act on. The code of an error is part of the contract; its title and message may change.
 * `remedy` says what helps: `retry` (repeat the same call later), `reauthorize` (authorize the company again) or `none`
 * (the caller must change the request first). docs/errors.md has a section for each code.
 */
export const errorCodes = {
  // Errors of every service.
  invalid_request: { status: 400, title: 'The request is not valid', remedy: 'none' },
  unauthorized: { status: 401, title: 'A valid service key is needed', remedy: 'none' },
  forbidden: { status: 403, title: 'Not allowed', remedy: 'none' },
  not_found: { status: 404, title: 'There is nothing here', remedy: 'none' },
  method_not_allowed: { status: 405, title: 'The method is not allowed here', remedy: 'none' },
  request_timeout: { status: 408, title: 'The request took too long to arrive', remedy: 'retry' },
  version_moved: { status: 412, title: 'The version has moved', remedy: 'none' },
  payload_too_large: { status: 413, title: 'The body is too large', remedy: 'none' },
  unsupported_media_type: {
    status: 415,
    title: 'The content type is not supported',
    remedy: 'none',
  },
  quota_exceeded: { status: 429, title: 'The key has too many of these', remedy: 'retry' },
  internal_error: { status: 500, title: 'The service failed', remedy: 'retry' },
  store_unavailable: { status: 503, title: 'The store is not available', remedy: 'retry' },
  broker_unavailable: { status: 503, title: 'The broker is not available', remedy: 'retry' },
  shutting_down: { status: 503, title: 'The service is shutting down', remedy: 'retry' },

  // Errors of token-service.
  credential_not_found: { status: 404, title: 'No such credential', remedy: 'reauthorize' },
  credential_faulted: { status: 424, title: 'The credential is faulted', remedy: 'reauthorize' },
  authorization_invalid: {
    status: 400,
    title: 'The authorization cannot be completed',
    remedy: 'reauthorize',
  },
  authorization_denied: {
    status: 400,
    title: 'The authorization was denied',
    remedy: 'reauthorize',
  },
  realm_mismatch: { status: 409, title: 'Another company was authorized', remedy: 'reauthorize' },
  connect_link_invalid: {
    status: 410,
    title: 'The connect link cannot be used',
    remedy: 'none',
  },
  connect_links_full: { status: 409, title: 'Too many connect links', remedy: 'none' },
  daily_actions_used: {
    status: 429,
    title: 'Too many audited actions of this key today',
    remedy: 'retry',
  },
  code_exchange_failed: {
    status: 502,
    title: 'The code could not be exchanged',
    remedy: 'reauthorize',
  },
  provider_unavailable: { status: 503, title: 'The provider is not available', remedy: 'retry' },
  provider_client_rejected: {
    status: 503,
    title: 'The provider rejects this application',
    remedy: 'retry',
  },
  busy: { status: 503, title: 'Too many authorizations at the same time', remedy: 'retry' },

  // Errors of webhook-receiver.
  signature_invalid: { status: 403, title: 'The signature does not match', remedy: 'none' },
  too_many_deliveries: { status: 503, title: 'Too many deliveries at once', remedy: 'retry' },

  // Errors of the console.
  sign_in_needed: { status: 401, title: 'Sign in first', remedy: 'none' },
  sign_in_rejected: { status: 401, title: 'The sign-in was rejected', remedy: 'none' },
  sign_in_check_needed: {
    status: 401,
    title: 'The sign-in provider must confirm the session',
    remedy: 'none',
  },
  sign_in_delayed: { status: 429, title: 'Too soon after a failed sign-in', remedy: 'retry' },
  outcome_unknown: { status: 504, title: 'The outcome is unknown', remedy: 'none' },
  service_unavailable: { status: 503, title: 'A service does not respond', remedy: 'retry' },
  console_key_rejected: {
    status: 502,
    title: 'The key of the console is rejected',
    remedy: 'none',
  },

  // Errors of the accounting gateway.
  target_invalid: { status: 400, title: 'The request target is not acceptable', remedy: 'none' },
  transfer_coding_unsupported: {
    status: 501,
    title: 'The transfer coding is not supported',
    remedy: 'none',
  },
  throttled: { status: 429, title: 'Too many calls for this realm', remedy: 'retry' },
  upstream_unreachable: {
    status: 502,
    title: 'The accounting API cannot be reached',
    remedy: 'retry',
  },
  upstream_timeout: {
    status: 504,
    title: 'The accounting API did not respond in time',
    remedy: 'retry',
  },
  token_service_unavailable: {
    status: 503,
    title: 'No access token is available now',
    remedy: 'retry',
  },

  // Errors of the coordinator.
  process_built_in: { status: 409, title: 'The process is built in', remedy: 'none' },
  input_invalid: { status: 400, title: 'The data is not valid', remedy: 'none' },
  process_not_found: { status: 404, title: 'No such process', remedy: 'none' },
  too_many_watchers: { status: 503, title: 'Too many clients read the events', remedy: 'retry' },
  too_many_exports: { status: 503, title: 'Too many exports', remedy: 'retry' },
  summary_not_ready: { status: 503, title: 'No audit is finished yet', remedy: 'retry' },
  transaction_not_found: { status: 404, title: 'No such transaction', remedy: 'none' },
  response_not_found: { status: 404, title: 'No such response', remedy: 'none' },
  step_not_found: { status: 400, title: 'The process has no such step', remedy: 'none' },
  transaction_conflict: { status: 409, title: 'The id is used for other data', remedy: 'none' },
  transaction_erased: {
    status: 409,
    title: 'The data of the transaction is erased',
    remedy: 'none',
  },
  transaction_active: { status: 409, title: 'The transaction is still active', remedy: 'retry' },
  parent_active: { status: 409, title: 'The parent is still active', remedy: 'retry' },
  event_not_found: { status: 404, title: 'The process has no such event', remedy: 'none' },
  event_already_received: {
    status: 409,
    title: 'Another event was received first',
    remedy: 'none',
  },
  transaction_not_active: { status: 409, title: 'The transaction is not active', remedy: 'none' },
  transaction_purged: { status: 409, title: 'The run is purged', remedy: 'none' },
  dead_letter_not_found: { status: 404, title: 'No such dead letter', remedy: 'none' },
  dead_letter_without_run: { status: 409, title: 'The dead letter has no run', remedy: 'none' },
  transaction_not_resumable: {
    status: 409,
    title: 'The transaction cannot be resumed',
    remedy: 'none',
  },
  transaction_not_undoable: {
    status: 409,
    title: 'The transaction cannot be undone',
    remedy: 'none',
  },
  transaction_not_retryable: {
    status: 409,
    title: 'The transaction waits for no retry',
    remedy: 'none',
  },
  transaction_not_in_doubt: {
    status: 409,
    title: 'The transaction is not in doubt',
    remedy: 'none',
  },
  step_in_flight: { status: 409, title: 'The step is in flight', remedy: 'retry' },
  operation_not_found: { status: 404, title: 'No such operation', remedy: 'none' },
  operation_not_running: { status: 409, title: 'The operation is over', remedy: 'none' },
  too_many_operations: { status: 409, title: 'Too many operations', remedy: 'retry' },
  schedule_not_found: { status: 404, title: 'No such schedule', remedy: 'none' },
  change_feed_not_found: { status: 404, title: 'No such change feed', remedy: 'none' },
  schedule_in_progress: { status: 409, title: 'The schedule is in progress', remedy: 'retry' },
  operation_not_paused: { status: 409, title: 'The operation is not paused', remedy: 'none' },
} as const satisfies Record<string, { status: number; title: string; remedy: Remedy }>

export type Remedy = 'retry' | 'reauthorize' | 'none'
export type ErrorCode = keyof typeof errorCodes

export interface ErrorDetails extends ErrorOptions {
  /** The number of seconds after which the caller should retry. It becomes the `Retry-After` header. */
  readonly retryAfterSeconds?: number
  /** Additional members of the problem document. They never contain a secret. */
  readonly members?: Readonly<Record<string, unknown>>
}

/**
 * An error that a caller can act on. The message is sent to callers. Therefore it contains no secret and no text from
 * another process.
 */
export class IntegrationError extends Error {
  override readonly name = 'IntegrationError'
  readonly code: ErrorCode
  readonly retryAfterSeconds: number | null
  readonly members: Readonly<Record<string, unknown>>

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause })
    this.code = code
    this.retryAfterSeconds = details.retryAfterSeconds ?? null
    this.members = details.members ?? {}
  }

  get remedy(): Remedy {
    return errorCodes[this.code].remedy
  }
}

/**
 * Returns the error for a key that has as many of something as one key may have, below the limit for all keys.
 *
 * @param what what the key has too many of, such as `connect links`
 */
export const quotaExceeded = (what: string, limit: number): IntegrationError =>
  new IntegrationError('quota_exceeded', `one key may have at most ${limit} ${what}`, {
    retryAfterSeconds: 60,
    members: { limit },
  })

/** Returns whether `error` is an {@link IntegrationError} with this code. */
export const hasCode = (error: unknown, code: ErrorCode): error is IntegrationError =>
  error instanceof IntegrationError && error.code === code

/** Problem details (RFC 9457) with a stable `code`. Further members depend on the code (docs/errors.md). */
export const Problem = z
  .object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string(),
    detail: z.string().optional(),
    instance: z.string().optional(),
  })
  .loose()
export type Problem = z.output<typeof Problem>
