/** What a service key may do. Each route requires one of these scopes; docs/access.md lists the routes of each. */
export const SCOPES = [
  /** GET, HEAD and queries of the accounting API. */
  'gateway:read',
  /** All other calls of the accounting API. */
  'gateway:write',
  'credentials:read',
  /** Access tokens, which give their holder the company's data at the provider. */
  'credentials:token',
  /** Connect, refresh, label and remove companies. */
  'credentials:manage',
  /** Exports, imports and key rotations. */
  'custody:transfer',
  'transactions:read',
  'transactions:queue',
  /** Replay, resume and cancel runs; pause and resume processes. */
  'transactions:operate',
  /** The audit log of token-service and the action log of the coordinator. */
  'audit:read',
  /** Name the person for whom the caller acts, in the header `Acting-For`. */
  'act-for',
] as const

export type Scope = (typeof SCOPES)[number]

/** The scopes of the keys in `SERVICE_API_KEY` and `SERVICE_API_KEYS`: all except `act-for`. */
export const SERVICE_SCOPES: readonly Scope[] = SCOPES.filter((scope) => scope !== 'act-for')
