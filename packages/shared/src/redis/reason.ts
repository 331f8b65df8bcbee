import { UnsupportedBackend } from '../observability/checks/check-result.ts'
import { reasonOf } from '../observability/health.ts'
import { tlsFailure } from '../tls/tls-failure.ts'

/** The error if none of the servers was found to be the primary. The message is safe to log. */
export class NoPrimary extends Error {
  override readonly name = 'NoPrimary'
}

export const NO_CLUSTER = 'Redis Cluster is not supported; use Sentinel or a single primary'

/** The meanings of the codes with which Redis begins an error reply. Other codes are reported unchanged. */
const meanings: Readonly<Record<string, string>> = {
  WRONGPASS: 'rejects the user or the password',
  NOAUTH: 'needs a password',
  NOPERM: 'denies this user a needed permission',
  DENIED: 'accepts connections from its own machine only',
  LOADING: 'is loading its data',
  READONLY: 'is a replica and rejects writes',
  MASTERDOWN: 'is a replica that lost its primary',
  NOREPLICAS: 'is a primary with too few replicas and rejects writes',
  MOVED: NO_CLUSTER,
  ASK: NO_CLUSTER,
  CROSSSLOT: NO_CLUSTER,
  CLUSTERDOWN: NO_CLUSTER,
}

/** Returns the part of a Redis error, or of a connection error, that is safe to log. */
export function redisReason(error: unknown): string {
  if (error instanceof NoPrimary || error instanceof UnsupportedBackend) return error.message
  const failure = tlsFailure(error)
  if (failure !== null) return failure.reason
  const message = error instanceof Error ? error.message : ''
  if (message.startsWith('ERR No such master')) return 'knows no primary of this name'
  if (/^(Socket timeout|Command timed out)/.test(message)) return 'does not respond'
  if (message === 'Connection is closed.') return 'connection closed'
  if (/^ERR unknown command .?sentinel/i.test(message)) return 'is not a Sentinel'
  const reason = reasonOf(error)
  return Object.hasOwn(meanings, reason) ? (meanings[reason] ?? reason) : reason
}
