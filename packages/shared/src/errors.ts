import { z } from 'zod'

export type Remedy = 'retry' | 'reauthorize' | 'none'

const problem = <const Status extends number>(
  status: Status,
  title: string,
  remedy: Remedy = 'none',
) => ({ status, title, remedy })

/**
 * The errors that callers can act on. The code of an error is part of the contract; its title and message may change.
 * `remedy` says what helps: `retry` (repeat the same call later), `reauthorize` (authorize the company again) or `none`
 * (the caller must change the request first). docs/errors.md has a section for each code.
 */
export const errorCodes = {
  // Errors of every service.
  invalid_request: problem(400, 'The request is not valid'),
  unauthorized: problem(401, 'A valid service key is needed'),
  forbidden: problem(403, 'Not allowed'),
  not_found: problem(404, 'There is nothing here'),
  method_not_allowed: problem(405, 'The method is not allowed here'),
  request_timeout: problem(408, 'The request took too long to arrive', 'retry'),
  version_moved: problem(412, 'The version has moved'),
  payload_too_large: problem(413, 'The body is too large'),
  unsupported_media_type: problem(415, 'The content type is not supported'),
  quota_exceeded: problem(429, 'The key has too many of these', 'retry'),
  internal_error: problem(500, 'The service failed', 'retry'),
  store_unavailable: problem(503, 'The store is not available', 'retry'),
  broker_unavailable: problem(503, 'The broker is not available', 'retry'),
  shutting_down: problem(503, 'The service is shutting down', 'retry'),

  // Errors of token-service.
  credential_not_found: problem(404, 'No such credential', 'reauthorize'),
  credential_faulted: problem(424, 'The credential is faulted', 'reauthorize'),
  authorization_invalid: problem(400, 'The authorization cannot be completed', 'reauthorize'),
  authorization_denied: problem(400, 'The authorization was denied', 'reauthorize'),
  realm_mismatch: problem(409, 'Another company was authorized', 'reauthorize'),
  connect_link_invalid: problem(410, 'The connect link cannot be used'),
  connect_links_full: problem(409, 'Too many connect links'),
  daily_actions_used: problem(429, 'Too many audited actions of this key today', 'retry'),
  code_exchange_failed: problem(502, 'The code could not be exchanged', 'reauthorize'),
  provider_unavailable: problem(503, 'The provider is not available', 'retry'),
  provider_client_rejected: problem(503, 'The provider rejects this application', 'retry'),
  busy: problem(503, 'Too many authorizations at the same time', 'retry'),

  // Errors of webhook-receiver.
  signature_invalid: problem(403, 'The signature does not match'),
  too_many_deliveries: problem(503, 'Too many deliveries at once', 'retry'),

  // Errors of the console.
  sign_in_needed: problem(401, 'Sign in first'),
  sign_in_rejected: problem(401, 'The sign-in was rejected'),
  sign_in_check_needed: problem(401, 'The sign-in provider must confirm the session'),
  sign_in_delayed: problem(429, 'Too soon after a failed sign-in', 'retry'),
  outcome_unknown: problem(504, 'The outcome is unknown'),
  service_unavailable: problem(503, 'A service does not respond', 'retry'),
  console_key_rejected: problem(502, 'The key of the console is rejected'),

  // Errors of the accounting gateway.
  target_invalid: problem(400, 'The request target is not acceptable'),
  transfer_coding_unsupported: problem(501, 'The transfer coding is not supported'),
  throttled: problem(429, 'Too many calls for this realm', 'retry'),
  upstream_unreachable: problem(502, 'The accounting API cannot be reached', 'retry'),
  upstream_timeout: problem(504, 'The accounting API did not respond in time', 'retry'),
  token_service_unavailable: problem(503, 'No access token is available now', 'retry'),

  // Errors of the coordinator.
  process_built_in: problem(409, 'The process is built in'),
  input_invalid: problem(400, 'The data is not valid'),
  process_not_found: problem(404, 'No such process'),
  too_many_watchers: problem(503, 'Too many clients read the events', 'retry'),
  too_many_exports: problem(503, 'Too many exports', 'retry'),
  summary_not_ready: problem(503, 'No audit is finished yet', 'retry'),
  transaction_not_found: problem(404, 'No such transaction'),
  response_not_found: problem(404, 'No such response'),
  step_not_found: problem(400, 'The process has no such step'),
  transaction_conflict: problem(409, 'The id is used for other data'),
  transaction_erased: problem(409, 'The data of the transaction is erased'),
  transaction_active: problem(409, 'The transaction is still active', 'retry'),
  parent_active: problem(409, 'The parent is still active', 'retry'),
  event_not_found: problem(404, 'The process has no such event'),
  event_already_received: problem(409, 'Another event was received first'),
  transaction_not_active: problem(409, 'The transaction is not active'),
  transaction_purged: problem(409, 'The run is purged'),
  dead_letter_not_found: problem(404, 'No such dead letter'),
  dead_letter_without_run: problem(409, 'The dead letter has no run'),
  transaction_not_resumable: problem(409, 'The transaction cannot be resumed'),
  transaction_not_undoable: problem(409, 'The transaction cannot be undone'),
  transaction_not_retryable: problem(409, 'The transaction waits for no retry'),
  transaction_not_in_doubt: problem(409, 'The transaction is not in doubt'),
  step_in_flight: problem(409, 'The step is in flight', 'retry'),
  operation_not_found: problem(404, 'No such operation'),
  operation_not_running: problem(409, 'The operation is over'),
  too_many_operations: problem(409, 'Too many operations', 'retry'),
  schedule_not_found: problem(404, 'No such schedule'),
  change_feed_not_found: problem(404, 'No such change feed'),
  schedule_in_progress: problem(409, 'The schedule is in progress', 'retry'),
  operation_not_paused: problem(409, 'The operation is not paused'),
} as const

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
