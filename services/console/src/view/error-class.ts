/** Explains the error classes of runs: what happened, and what a person can do about it. */

interface Meaning {
  /** What happened. The text continues a sentence, such as `Failed at order: …`. */
  readonly cause: string
  /** What a person should do about a run that failed with this class. */
  readonly remedy: string
  /** Whether the target or the coordinator rejected the data of the run. */
  readonly isDataRejected?: true
}

const LOOK = 'Look at the error, then resume.'
const FIX_TARGET = 'Fix the target, then resume: the same idempotency keys are sent again.'
const FIX_CODE = 'Fix the code of the step, deploy it, then resume.'
const RESUME_LATER = 'Resume it later.'

/** Returns the meaning of a class that says that another attempt with the same data fails in the same way. */
const rejected = (cause: string, remedy: string): Meaning => ({
  cause,
  remedy,
  isDataRejected: true,
})

/**
 * The meanings of the error classes that the coordinator stores. The classes `http_…` have a separate function.
 * docs/errors.md explains the classes in more detail.
 */
export const CLASSES: ReadonlyMap<string, Meaning> = new Map(
  Object.entries<Meaning>({
    network: { cause: 'the target could not be reached', remedy: FIX_TARGET },
    no_answer: { cause: 'the target gave no response', remedy: FIX_TARGET },
    step_timeout: {
      cause: 'the step took too long',
      remedy: 'Make the step faster, or raise its time limit, then resume.',
    },
    status_not_set: {
      cause: 'the code of the step ended without an outcome',
      remedy:
        'Let each branch of the step return the result of execute, complete, setStatus, waitFor or repeat, or call fail, then resume.',
    },
    step_threw: { cause: 'the code of the step threw an error', remedy: FIX_CODE },
    step_unhandled_rejection: {
      cause: 'a promise that the code of the step does not await was rejected',
      remedy: FIX_CODE,
    },
    step_uncaught_exception: {
      cause: 'a callback of the code of the step threw an error',
      remedy: FIX_CODE,
    },
    worker_lost: {
      cause: 'the worker was lost',
      remedy: 'Find out what ends the workers, such as too little memory.',
    },
    step_failed: { cause: 'the code of the step reported a failure', remedy: LOOK },
    response_invalid: {
      cause: 'the code of the step did not accept the response',
      remedy: FIX_CODE,
    },
    response_not_json: {
      cause: 'the target sent HTML or plain text in place of JSON',
      remedy: FIX_TARGET,
    },
    response_not_text: { cause: 'the response is not text', remedy: FIX_CODE },
    response_coding_unknown: {
      cause: 'the response has a content coding that cannot be read',
      remedy: FIX_TARGET,
    },
    response_too_large: { cause: 'the response is too large to be stored', remedy: FIX_CODE },
    secret_in_request: {
      cause: 'the call of the step would have sent a secret outside its place',
      remedy: FIX_CODE,
    },
    realm_missing: rejected(
      'the run has no company, but the step calls one',
      'Queue a copy with its company.',
    ),
    realm_foreign: rejected(
      'the step called another company than the company of the run',
      'Queue a copy for the other company, or correct the step and resume.',
    ),
    input_invalid: rejected('its data is not valid', 'Queue a copy with corrected data.'),
    transaction_id_invalid: rejected(
      'the id cannot be used for a call',
      'Queue a copy under another id.',
    ),
    payload_unreadable: {
      cause: 'its data cannot be decrypted',
      remedy: 'Correct PAYLOAD_KEYS, then resume.',
    },
    step_unknown: {
      cause: 'the process has no such step any more',
      remedy: 'Deploy the process with this step, then resume.',
    },
    step_before_missing: {
      cause: 'a step before it was never completed',
      remedy: 'Replay it, so that every step runs.',
    },
    attempts_used_up: {
      cause: 'the worker was lost in every attempt',
      remedy: 'Find out what ends the workers, such as too little memory, then resume.',
    },
    rounds_used_up: {
      cause: 'the step has called repeat too often',
      remedy: 'Find out why it does not end, or raise maxRounds, then resume.',
    },
    state_invalid: { cause: 'the state of the step is not valid', remedy: FIX_CODE },
    state_too_large: { cause: 'the state of the step is too large', remedy: FIX_CODE },
    deadline_exceeded: {
      cause: 'the time limit of the run is over',
      remedy: 'If it must still be done, resume it: it gets the whole time again.',
    },
    event_timeout: {
      cause: 'the event for which it has waited did not arrive in time',
      remedy: 'If the event can still arrive, resume it: it waits again.',
    },
    children_failed: {
      cause: 'too many of its children have not been completed',
      remedy: 'Look at its failed children. A resume resumes them, then the run goes on.',
    },
    child_conflict: {
      cause: 'a run with the id of one of its children exists and is not its child',
      remedy: 'Give the items other ids, or replay the run, whose children then have other ids.',
    },
    children_too_deep: {
      cause: 'it has too many ancestors to have children',
      remedy: 'Let a process nearer to the first one start the children.',
    },
    parent_ended: {
      cause: 'its parent has ended, or too many of its siblings have failed',
      remedy: 'Resume the parent, which resumes this run as well.',
    },
    step_in_doubt: {
      cause: 'the step may have done its work and has no confirm',
      remedy: 'Look into the target, then settle the step: the undo goes on.',
    },
    undo_cancelled: { cause: 'its undo was cancelled', remedy: 'Resume it: the undo goes on.' },
    object_deleted: {
      cause: 'the object for whose change it has waited does not exist any more',
      remedy: 'Replay the run if the object was entered again, or leave it.',
    },
    run_not_waiting: {
      cause: 'a run that waits for a change could not be moved on yet',
      remedy: 'Deploy the process with this place again, then resume the look.',
    },
    step_waits: { cause: 'the step asked to be run again later', remedy: RESUME_LATER },
    credential_faulted: {
      cause: 'the company could not be used',
      remedy: 'Reconnect the company, then resume.',
    },
    credential_held: { cause: 'the provider asked the company to slow down', remedy: RESUME_LATER },
    target_held: {
      cause: 'the target asked for slower calls or is at its limits',
      remedy: RESUME_LATER,
    },
    store_unavailable: { cause: 'the database was not available', remedy: RESUME_LATER },
    broker_unavailable: { cause: 'the message broker was not available', remedy: RESUME_LATER },
    change_feed_rejected: {
      cause: 'the provider rejects the request for changes',
      remedy: 'Look at the error. The next sweep reads the same changes.',
    },
    webhook_invalid: {
      cause: 'its data is not that of a webhook',
      remedy: 'It cannot be delivered. Find out who changed the data.',
    },
    webhook_address_refused: {
      cause: 'the receiver has an address of a private network',
      remedy: 'Correct its DNS entry, or name its host in WEBHOOKS_ALLOWED_HOSTS, then resume.',
    },
    webhook_receiver_removed: {
      cause: 'the receiver was removed',
      remedy:
        'Nothing is to be done. To deliver it after all, add the receiver to WEBHOOKS_FILE again, then resume.',
    },
    provider_permission_denied: {
      cause: 'the provider does not allow this call to the user who connected the company',
      remedy:
        'Give that user the right, or reconnect the company as an administrator, then resume.',
    },
    provider_subscription_ended: {
      cause: 'the subscription of the company has ended or is suspended',
      remedy: 'Have its owner renew it, then resume.',
    },
    provider_environment_mixed: {
      cause: 'keys and companies of the sandbox and of production are mixed',
      remedy: 'Check CLIENT_ID, DISCOVERY_URL and ACCOUNTING_URL, then resume.',
    },
    provider_duplicate_request: {
      cause: 'the provider has processed an earlier attempt of this call',
      remedy: 'Look up at the provider what it did, then settle it.',
    },
    changed_outside: {
      cause: 'the same fields of the object were changed in the books meanwhile',
      remedy: 'Look at the object in the books. Resume the run to overwrite it, or leave it.',
    },
    books_closed: {
      cause: 'the books of the company are closed for this period',
      remedy: 'Have the period opened or its closing date moved, then resume.',
    },
    already_exists: {
      cause: 'another run has created this object',
      remedy:
        'The error names the run and the object. If it must exist twice, queue a copy with another mark.',
    },
    mark_ambiguous: {
      cause: 'several objects in the books may be the one of this run',
      remedy: 'Look at the objects that the error names, remove the surplus ones, then settle it.',
    },
    entry_not_found: {
      cause: 'no run has created the object that the step needs',
      remedy: 'Run the transaction that creates it first, then resume.',
    },
    entry_ambiguous: {
      cause: 'a run has created several objects of the kind that the step needs',
      remedy: 'Name the step that has created the object, deploy the code, then resume.',
    },
    provider_fault: rejected(
      'the provider reported a fault',
      'Queue a copy with changed data, or fix the data at the provider and resume.',
    ),
  }),
)

/** Returns the meaning of an error class. An unknown class is shown with spaces in place of its underscores. */
export function meaningOf(errorClass: string): Meaning {
  const status = /^http_(\d{3})$/.exec(errorClass)?.[1]
  if (status !== undefined) return meaningOfStatus(status)
  return CLASSES.get(errorClass) ?? { cause: errorClass.replaceAll('_', ' '), remedy: LOOK }
}

function meaningOfStatus(status: string): Meaning {
  const cause = `the target responded with ${status}`
  if (status === '429' || status.startsWith('5')) return { cause, remedy: FIX_TARGET }
  if (status.startsWith('4'))
    return rejected(
      cause,
      'The same data is rejected again. Queue a copy with changes, or fix the target and resume.',
    )
  if (status.startsWith('3'))
    return {
      cause,
      remedy:
        'Another attempt will not help, because redirects are not followed. Fix the call, then resume.',
    }
  return { cause, remedy: FIX_CODE }
}

/**
 * Whether the target or the coordinator rejected the data of the run. Another attempt sends the same data, so a copy
 * with changed data is the first thing to try.
 */
export const isDataRejected = (errorClass: string | null): boolean =>
  errorClass !== null && meaningOf(errorClass).isDataRejected === true

/** Returns a sentence that says what a person should do about a run that failed with this error class. */
export const failureRemedy = (errorClass: string | null): string =>
  errorClass === null ? LOOK : meaningOf(errorClass).remedy
