/**
 * Explains the error classes of runs: what happened, and what a person can do about it. docs/errors.md explains the
 * classes that the coordinator stores in more detail. The classes `http_…` have a separate function.
 */

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

/** The causes of the classes with one of these remedies. */
const IN_TARGET = {
  network: 'the target could not be reached',
  no_answer: 'the target gave no response',
  response_not_json: 'the target sent HTML or plain text in place of JSON',
  response_coding_unknown: 'the response has a content coding that cannot be read',
}
const IN_CODE = {
  step_threw: 'the code of the step threw an error',
  step_unhandled_rejection: 'a promise that the code of the step does not await was rejected',
  step_uncaught_exception: 'a callback of the code of the step threw an error',
  response_invalid: 'the code of the step did not accept the response',
  response_not_text: 'the response is not text',
  response_too_large: 'the response is too large to be stored',
  secret_in_request: 'the call of the step would have sent a secret outside its place',
  state_invalid: 'the state of the step is not valid',
  state_too_large: 'the state of the step is too large',
}
const TEMPORARY = {
  step_waits: 'the step asked to be run again later',
  credential_held: 'the provider asked the company to slow down',
  target_held: 'the target asked for slower calls or is at its limits',
  store_unavailable: 'the database was not available',
  broker_unavailable: 'the message broker was not available',
}
/** The causes and the remedies of classes that say that another attempt with the same data fails in the same way. */
const REJECTED: Pairs = {
  realm_missing: [
    'the run has no company, but the step calls one',
    'Queue a copy with its company.',
  ],
  realm_foreign: [
    'the step called another company than the company of the run',
    'Queue a copy for the other company, or correct the step and resume.',
  ],
  input_invalid: ['its data is not valid', 'Queue a copy with corrected data.'],
  transaction_id_invalid: ['the id cannot be used for a call', 'Queue a copy under another id.'],
  provider_fault: [
    'the provider reported a fault',
    'Queue a copy with changed data, or fix the data at the provider and resume.',
  ],
}
/** The causes and the remedies of the other classes. */
const OTHERS: Pairs = {
  step_timeout: [
    'the step took too long',
    'Make the step faster, or raise its time limit, then resume.',
  ],
  status_not_set: [
    'the code of the step ended without an outcome',
    'Let each branch of the step return the result of execute, complete, setStatus, waitFor or repeat, or call fail, then resume.',
  ],
  worker_lost: [
    'the worker was lost',
    'Find out what ends the workers, such as too little memory.',
  ],
  step_failed: ['the code of the step reported a failure', LOOK],
  payload_unreadable: ['its data cannot be decrypted', 'Correct PAYLOAD_KEYS, then resume.'],
  step_unknown: [
    'the process has no such step any more',
    'Deploy the process with this step, then resume.',
  ],
  step_before_missing: [
    'a step before it was never completed',
    'Replay it, so that every step runs.',
  ],
  attempts_used_up: [
    'the worker was lost in every attempt',
    'Find out what ends the workers, such as too little memory, then resume.',
  ],
  rounds_used_up: [
    'the step has called repeat too often',
    'Find out why it does not end, or raise maxRounds, then resume.',
  ],
  deadline_exceeded: [
    'the time limit of the run is over',
    'If it must still be done, resume it: it gets the whole time again.',
  ],
  event_timeout: [
    'the event for which it has waited did not arrive in time',
    'If the event can still arrive, resume it: it waits again.',
  ],
  children_failed: [
    'too many of its children have not been completed',
    'Look at its failed children. A resume resumes them, then the run goes on.',
  ],
  child_conflict: [
    'a run with the id of one of its children exists and is not its child',
    'Give the items other ids, or replay the run, whose children then have other ids.',
  ],
  children_too_deep: [
    'it has too many ancestors to have children',
    'Let a process nearer to the first one start the children.',
  ],
  parent_ended: [
    'its parent has ended, or too many of its siblings have failed',
    'Resume the parent, which resumes this run as well.',
  ],
  step_in_doubt: [
    'the step may have done its work and has no confirm',
    'Look into the target, then settle the step: the undo goes on.',
  ],
  undo_cancelled: ['its undo was cancelled', 'Resume it: the undo goes on.'],
  object_deleted: [
    'the object for whose change it has waited does not exist any more',
    'Replay the run if the object was entered again, or leave it.',
  ],
  run_not_waiting: [
    'a run that waits for a change could not be moved on yet',
    'Deploy the process with this place again, then resume the look.',
  ],
  credential_faulted: ['the company could not be used', 'Reconnect the company, then resume.'],
  change_feed_rejected: [
    'the provider rejects the request for changes',
    'Look at the error. The next sweep reads the same changes.',
  ],
  webhook_invalid: [
    'its data is not that of a webhook',
    'It cannot be delivered. Find out who changed the data.',
  ],
  webhook_address_refused: [
    'the receiver has an address of a private network',
    'Correct its DNS entry, or name its host in WEBHOOKS_ALLOWED_HOSTS, then resume.',
  ],
  webhook_receiver_removed: [
    'the receiver was removed',
    'Nothing is to be done. To deliver it after all, add the receiver to WEBHOOKS_FILE again, then resume.',
  ],
  provider_permission_denied: [
    'the provider does not allow this call to the user who connected the company',
    'Give that user the right, or reconnect the company as an administrator, then resume.',
  ],
  provider_subscription_ended: [
    'the subscription of the company has ended or is suspended',
    'Have its owner renew it, then resume.',
  ],
  provider_environment_mixed: [
    'keys and companies of the sandbox and of production are mixed',
    'Check CLIENT_ID, DISCOVERY_URL and ACCOUNTING_URL, then resume.',
  ],
  provider_duplicate_request: [
    'the provider has processed an earlier attempt of this call',
    'Look up at the provider what it did, then settle it.',
  ],
  changed_outside: [
    'the same fields of the object were changed in the books meanwhile',
    'Look at the object in the books. Resume the run to overwrite it, or leave it.',
  ],
  books_closed: [
    'the books of the company are closed for this period',
    'Have the period opened or its closing date moved, then resume.',
  ],
  already_exists: [
    'another run has created this object',
    'The error names the run and the object. If it must exist twice, queue a copy with another mark.',
  ],
  mark_ambiguous: [
    'several objects in the books may be the one of this run',
    'Look at the objects that the error names, remove the surplus ones, then settle it.',
  ],
  entry_not_found: [
    'no run has created the object that the step needs',
    'Run the transaction that creates it first, then resume.',
  ],
  entry_ambiguous: [
    'a run has created several objects of the kind that the step needs',
    'Name the step that has created the object, deploy the code, then resume.',
  ],
}

type Pairs = Readonly<Record<string, readonly [cause: string, remedy: string]>>
const withRemedy = (causes: Readonly<Record<string, string>>, remedy: string) =>
  Object.entries(causes).map(([name, cause]) => [name, { cause, remedy }] as const)

export const CLASSES: ReadonlyMap<string, Meaning> = new Map<string, Meaning>([
  ...withRemedy(IN_TARGET, FIX_TARGET),
  ...withRemedy(IN_CODE, FIX_CODE),
  ...withRemedy(TEMPORARY, RESUME_LATER),
  ...Object.entries(REJECTED).map(
    ([name, [cause, remedy]]) => [name, rejected(cause, remedy)] as const,
  ),
  ...Object.entries(OTHERS).map(([name, [cause, remedy]]) => [name, { cause, remedy }] as const),
])

function rejected(cause: string, remedy: string): Meaning {
  return { cause, remedy, isDataRejected: true }
}

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
