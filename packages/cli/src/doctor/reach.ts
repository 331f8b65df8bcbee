import {
  type CheckResult,
  ok,
  problem,
} from '@integration-host/shared/observability/checks/check-result'
import { brokerReason } from '@integration-host/shared/messaging/rabbitmq/broker-errors'
import type { Secret } from '@integration-host/shared/secrets/secret'

/** A backend's address without what is secret in it. */
export const hostOf = (url: Secret): string => new URL(url.reveal()).host

export const reached = (host: string): CheckResult => ok('connection', host)

/** Why a backend could not be used, in our words: a driver's may hold a password or steer a terminal. */
export function unreachable(host: string, variable: string, error: unknown): CheckResult {
  const reason = reasonFor(error)
  const [found, remediation] = (Object.hasOwn(meanings, reason) ? meanings[reason] : undefined) ?? [
    `cannot be used (${reason})`,
    'Is it the right server, and is it up?',
  ]
  return problem(
    'connection',
    `${host}: ${found}`,
    `${remediation.replace(/\.$/, '')} (${variable})`,
  )
}

/** Our own end of patience, as an error. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

function reasonFor(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  // ioredis tells of the last failure only; fetch's cause is the network's error.
  const { cause, message } = error
  if (cause instanceof Error) return reasonFor(cause)
  const redis = /^(WRONGPASS|NOAUTH|NOPERM|DENIED)\b/.exec(message)
  if (redis !== null) return redis[0]
  // amqplib's own, without a code.
  return message.includes('ETIMEDOUT') ? 'ETIMEDOUT' : brokerReason(error)
}

const REFUSED = ['refuses the user or the password', 'Set the right ones.'] as const
const SILENT = ['does not answer in time', 'Is it up, and does a firewall stand between?'] as const
const UNTRUSTED = [
  'shows a certificate that is not trusted here',
  'Give Node the authority by NODE_EXTRA_CA_CERTS.',
] as const

const meanings: Readonly<Record<string, readonly [found: string, remediation: string]>> = {
  ECONNREFUSED: ['nobody listens there', 'Start it, or set the right address.'],
  ENOTFOUND: ['there is no such host', 'Set the right address.'],
  EAI_AGAIN: ['the host cannot be looked up now', 'Is the name server up?'],
  EHOSTUNREACH: ['no way leads there', 'Set the right address, or fix the network.'],
  ECONNRESET: ['ends the connection', 'Is it the right server, and does it want TLS?'],
  ETIMEDOUT: SILENT,
  CONNECT_TIMEOUT: SILENT,
  TimeoutError: SILENT,
  NoAnswer: SILENT,
  WRONGPASS: REFUSED,
  NOAUTH: ['wants a password', 'Set it in the address.'],
  NOPERM: ['lets this user do too little', 'Allow it +info, +time and +config|get.'],
  DENIED: ['takes connections from its own machine only', 'Set a password there.'],
  'ACCESS-REFUSED': ['refuses the user, the password, or the virtual host', 'Set the right ones.'],
  'NOT-ALLOWED': ['has no such virtual host, or not for this user', 'Set the right one.'],
  '28P01': REFUSED,
  '28000': REFUSED,
  '3D000': ['has no such database', 'Create it, or set the right name.'],
  '53300': ['has no connection left', 'Raise max_connections, or end other connections.'],
  '57P03': ['is starting up or shutting down', 'Wait.'],
  '42501': ['lets this user do too little', 'Make it the owner of the database.'],
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: ['shows a certificate that has run out', 'Renew it.'],
}
