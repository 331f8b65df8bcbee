import { type CheckResult, ok, problem } from '@integration-host/shared/observability/checks'
import { brokerReason } from '@integration-host/shared/messaging/rabbitmq/broker-errors'
import type { Secret } from '@integration-host/shared/secrets/secret'
import { meanings } from './error-meanings.ts'
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
 * Returns the check result of a backend that cannot be used. The message of a driver may contain a password or terminal
 * control characters, so the check result does not contain this message.
 */
export function unreachable(host: string, variable: string, error: unknown): CheckResult {
  const reason = reasonFor(error)
  const [found, remedy] = meaningOfTls(error, variable) ??
    meanings.get(reason) ?? [
      `cannot be used (${reason})`,
      'Check that the address is right and the server is running.',
    ]
  return problem('connection', `${host}: ${found}`, `${remedy.replace(/\.$/, '')} (${variable})`)
}

/** The error code if the deadline of doctor passed before the backend responded. */
export class DeadlinePassed extends Error {
  override readonly name = 'DeadlinePassed'
}

// Only Redis, PostgreSQL and RabbitMQ have settings for TLS files.
function meaningOfTls(error: unknown, variable: string): readonly [string, string] | undefined {
  const [, prefix] = /^(REDIS|AMQP|DATABASE)_URL$/.exec(variable) ?? []
  const failure = tlsFailure(error instanceof Error ? (error.cause ?? error) : error)
  if (prefix === undefined || failure === null) return undefined
  return [failure.reason, failure.remedy.replaceAll('*', prefix)]
}

function reasonFor(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  // ioredis wraps the last connection error; the cause of a fetch error is the network error.
  const { cause, message } = error
  if (cause instanceof Error) return reasonFor(cause)
  const code = /^[A-Z]{3,15}\b/.exec(message)?.[0] ?? ''
  if (meanings.has(code)) return code
  // amqplib's errors for a timeout or a rejected connection have no code, so the message is matched.
  return message.includes('ETIMEDOUT') ? 'ETIMEDOUT' : brokerReason(error)
}

/** Returns whether the check results show that a connection to the subject was established. */
export const isReached = (results: readonly CheckResult[]): boolean =>
  results.some(({ check, verdict }) => check === 'connection' && verdict === 'ok')
