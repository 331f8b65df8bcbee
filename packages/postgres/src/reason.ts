import { UnsupportedBackend } from '@integration-host/shared/observability/checks'
import { reasonOf } from '@integration-host/shared/observability/health'
import { tlsFailure } from '@integration-host/shared/tls/tls-failure'
import { NoUsableServer } from './server-socket.ts'

const STANDBY = 'the server is a standby (read-only)'
const UNRESPONSIVE = 'the server does not respond in time'

/** The meanings of error codes of the server (SQLSTATE; PostgreSQL manual, appendix A) and of the network. */
const meanings: Readonly<Record<string, string>> = {
  '08P01': 'the server or a connection pooler rejects a parameter of the URL (08P01)',
  '25006': STANDBY,
  '28000': 'the server does not allow this user, host or encryption (28000)',
  '28P01': 'the server rejects the user or the password (28P01)',
  '3D000': 'the server has no such database (3D000)',
  '42704': 'the server does not know a parameter of the URL (42704)',
  '53300': 'the server has too many clients (53300)',
  '55000': 'the database accepts no connections (55000)',
  '55P03': 'another session holds a lock for too long (55P03)',
  '57P01': 'the server was shut down (57P01)',
  '57P03': 'the server is starting up or shutting down (57P03)',
  CONNECT_TIMEOUT: UNRESPONSIVE,
  CONNECTION_CLOSED: 'the connection was lost',
  ETIMEDOUT: UNRESPONSIVE,
  NOT_WRITABLE: STANDBY,
  TLS_NOT_OFFERED: 'the server does not offer TLS',
}

/** Returns the part of a PostgreSQL error, or of a connection error, that is safe to log. */
export function postgresReason(error: unknown): string {
  if (error instanceof UnsupportedBackend) return error.message
  if (error instanceof NoUsableServer)
    return [...new Set(error.failures.map(postgresReason))].join('; ')
  const failure = tlsFailure(error)
  if (failure !== null) return failure.reason
  const code = reasonOf(error)
  return Object.hasOwn(meanings, code) ? (meanings[code] ?? code) : code
}
