/** The problems of every route that asks a service. */
export const PEER_PROBLEMS = {
  400: 'invalid',
  401: 'no session',
  403: 'not a page of the console, or another role is needed',
  404: 'there is no such thing',
  502: 'a service rejects the key of the console',
  503: 'a service does not respond',
} as const
