import {
  type CheckResult,
  ok,
  problem,
} from '@integration-host/shared/observability/checks/check-result'
import { brokerReason } from '@integration-host/shared/messaging/rabbitmq/broker-errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { tlsFailure } from '@integration-host/shared/tls/tls-failure'

/** Returns the hosts and ports as they are written in a backend's address, without user and password. */
export const hostOf = (url: Secret): string =>
  url
    .reveal()
    .split(/,(?=\w+:\/\/)/)
    .map((one) => /:\/\/(?:[^/?#]*@)?([^/?#]*)/.exec(one)?.[1] ?? '')
    .join(',')

export const reached = (host: string): CheckResult => ok('connection', host)

/**
 * Returns the check result of a backend that cannot be used. The check result never contains the message of a driver,
 * because such a message may contain a password or terminal control characters.
 */
export function unreachable(host: string, variable: string, error: unknown): CheckResult {
  const reason = reasonFor(error)
  const [found, remediation] = meaningOfTls(error, variable) ??
    (Object.hasOwn(meanings, reason) ? meanings[reason] : undefined) ?? [
      `cannot be used (${reason})`,
      'Check that the address is right and the server is running.',
    ]
  return problem(
    'connection',
    `${host}: ${found}`,
    `${remediation.replace(/\.$/, '')} (${variable})`,
  )
}

/** The deadline of the command doctor passed before the backend responded. */
export class DeadlinePassed extends Error {
  override readonly name = 'DeadlinePassed'
}

// Only Redis, PostgreSQL and RabbitMQ have settings for TLS files.
function meaningOfTls(error: unknown, variable: string): readonly [string, string] | undefined {
  const [, prefix] = /^(REDIS|AMQP|DATABASE)_URL$/.exec(variable) ?? []
  const failure = tlsFailure(error instanceof Error ? (error.cause ?? error) : error)
  if (prefix === undefined || failure === null) return undefined
  return [failure.reason, failure.remediation.replaceAll('*', prefix)]
}

function reasonFor(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  // ioredis wraps the last connection error; the cause of a fetch error is the network error.
  const { cause, message } = error
  if (cause instanceof Error) return reasonFor(cause)
  const redis = /^(WRONGPASS|NOAUTH|NOPERM|DENIED)\b/.exec(message)
  if (redis !== null) return redis[0]
  // amqplib's errors for a timeout or a rejected connection have no code, so the message is matched.
  return message.includes('ETIMEDOUT') ? 'ETIMEDOUT' : brokerReason(error)
}

const CREDENTIALS_REJECTED = ['rejects the user or the password', 'Set the right ones.'] as const
const UNRESPONSIVE = [
  'does not respond in time',
  'Check that the server is running and that no firewall blocks the connection.',
] as const
const UNTRUSTED = [
  'presents a certificate that is not trusted here',
  'Give Node the authority by NODE_EXTRA_CA_CERTS.',
] as const

const meanings: Readonly<Record<string, readonly [found: string, remediation: string]>> = {
  ECONNREFUSED: ['no process listens there', 'Start it, or set the right address.'],
  ENOTFOUND: ['there is no such host', 'Set the right address.'],
  EAI_AGAIN: ['the host name cannot be resolved now', 'Is the name server up?'],
  EHOSTUNREACH: ['the network does not reach it', 'Set the right address, or fix the network.'],
  ECONNRESET: ['ends the connection', 'Is it the right server, and does it want TLS?'],
  ETIMEDOUT: UNRESPONSIVE,
  CONNECT_TIMEOUT: UNRESPONSIVE,
  TimeoutError: UNRESPONSIVE,
  DeadlinePassed: UNRESPONSIVE,
  WRONGPASS: CREDENTIALS_REJECTED,
  NOAUTH: ['needs a password', 'Set it in the address.'],
  NOPERM: ['denies this user a needed permission', 'Allow it +info, +time and +config|get.'],
  DENIED: ['accepts connections from its own machine only', 'Set a password there.'],
  'ACCESS-REFUSED': ['rejects the user, the password, or the virtual host', 'Set the right ones.'],
  'NOT-ALLOWED': ['has no such virtual host, or not for this user', 'Set the right one.'],
  '28P01': CREDENTIALS_REJECTED,
  '28000': CREDENTIALS_REJECTED,
  '3D000': ['has no such database', 'Create it, or set the right name.'],
  '53300': ['has no free connection', 'Raise max_connections, or end other connections.'],
  '57P03': ['is starting up or shutting down', 'Wait.'],
  NOT_WRITABLE: ['is a standby (read-only)', 'Add the primary to the address, or promote one.'],
  TLS_NOT_OFFERED: ['does not offer TLS', 'Set ssl = on there, or another sslmode in the address.'],
  '42501': ['denies this user a needed permission', 'Make it the owner of the database.'],
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: ['presents a certificate that has expired', 'Renew it.'],
}

/** Returns whether the check results show that a connection to the subject was established. */
export const isReached = (results: readonly CheckResult[]): boolean =>
  results.some(({ check, verdict }) => check === 'connection' && verdict === 'ok')
