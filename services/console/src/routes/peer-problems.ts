/** The problem responses of every route that sends a request to a service. */
export const PEER_PROBLEMS = {
  400: 'invalid',
  401: 'no session',
  403: 'not a page of the console, or another role is needed',
  404: 'there is no such thing',
  502: 'a service rejects the key of the console',
  503: 'a service does not respond',
} as const

/** The problem responses of every route that changes something at a service. */
export const ACTION_PROBLEMS = {
  ...PEER_PROBLEMS,
  409: 'the state does not allow the action',
  412: 'it has changed since the person has read it',
  413: 'too large',
  415: 'not application/json',
  424: 'the credential is faulted',
} as const
