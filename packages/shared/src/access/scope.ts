/** The scopes of service keys. Each route requires one of them; docs/access.md lists the routes of each scope. */
export const SCOPES = [
  /** Allows GET, HEAD and queries of the accounting API. */
  'gateway:read',
  /** Allows all other calls of the accounting API. */
  'gateway:write',
  'credentials:read',
  /** Allows reading access tokens, which give their holder access to the company's data at the provider. */
  'credentials:token',
  /** Allows connecting, refreshing, labelling and removing companies. */
  'credentials:manage',
  /** Allows exports, imports and key rotations. */
  'custody:transfer',
  'transactions:read',
  'transactions:queue',
  /** Allows replaying, resuming and cancelling runs, and pausing and resuming processes. */
  'transactions:operate',
  /** Allows sending events to runs that wait for them, such as approvals. No other scope implies it. */
  'transactions:signal',
  /** Allows reading the audit log of token-service, the action log of the coordinator and the gateway's failed calls. */
  'audit:read',
  /** Allows naming the person for whom the caller acts, in the header `Acting-For`. */
  'act-for',
] as const

export type Scope = (typeof SCOPES)[number]

/** The scopes of the keys in `SERVICE_API_KEY` and `SERVICE_API_KEYS`: all scopes except `act-for`. */
export const SERVICE_SCOPES: readonly Scope[] = SCOPES.filter((scope) => scope !== 'act-for')

/** The roles of the users of the console. A viewer sees the state of the installation. An operator may also act on it. */
export const roles = ['viewer', 'operator'] as const
export type Role = (typeof roles)[number]
