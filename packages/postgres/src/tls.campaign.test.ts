/** Connects to PostgreSQL servers that only this test file uses. Their certificates are created at run time. */
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createHealth } from '@integration-host/shared/observability/health'
import { createLogger } from '@integration-host/shared/observability/logger'
import type { TlsPaths } from './address.ts'
import { Secret } from '@integration-host/shared/secrets/secret'
import {
  type Authority,
  type Certificate,
  createAuthority,
} from '@integration-host/shared/test-support/certificates'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type PostgresNode, startPrimary } from '../../../tests/support/backends/postgres-nodes.ts'
import { connectPostgres } from './connection.ts'

const PASSWORD = 'never-shown'
const UNKNOWN_AUTHORITY = "the server's certificate is from an unknown authority"
const WRONG_NAME = "the host name does not match the server's certificate"

let authority: Authority
let other: Authority
let client: Certificate
let withTls: PostgresNode
let withoutTls: PostgresNode

beforeAll(async () => {
  ;[authority, other] = await Promise.all([createAuthority(), createAuthority()])
  const server = await authority.issue('server', 'DNS:localhost')
  client = await authority.issue('client')
  withTls = await startPrimary({
    tls: { ...server, caFile: authority.caFile },
    access: [
      'hostssl all certified all scram-sha-256 clientcert=verify-ca',
      'hostnossl all encrypted all reject',
      'host all all all scram-sha-256',
    ].join('\n'),
  })
  withoutTls = await startPrimary()
  for (const role of ['certified', 'encrypted'])
    await withTls.sql.unsafe(`create role ${role} superuser login password '${PASSWORD}'`)
  await withTls.sql.unsafe(`create role limited login password '${PASSWORD}' connection limit 0`)
})
afterAll(async () => {
  for (const each of [withTls, withoutTls, authority, other]) await each[Symbol.asyncDispose]()
})

function connect(url: string, tls: TlsPaths = {}) {
  const lines: string[] = []
  const logger = createLogger('test', 'debug', { write: (line) => void lines.push(line) })
  const health = createHealth(logger)
  const dependency = health.dependency('postgres')
  const about = { name: 'test', dependency, logger, tls }
  const connection = connectPostgres(new Secret(url), about)
  return {
    run: connection.run,
    lines,
    ready: () => eventually(() => expect(health.report().status).toBe('ready')),
    state: () => health.report().dependencies['postgres'],
    [Symbol.asyncDispose]: () => connection[Symbol.asyncDispose](),
  }
}

/**
 * Returns a connection URL. In its query, `{ca}`, `{other}`, `{cert}` and `{key}` are replaced by the paths of the
 * certificate and key files.
 */
function urlOf(node: PostgresNode, host: string, query: string, user?: string): string {
  const url = new URL(node.url)
  url.hostname = host
  if (user !== undefined) [url.username, url.password] = [user, PASSWORD]
  const { certFile, keyFile } = client
  return (
    url.href +
    query
      .replace('{ca}', authority.caFile)
      .replace('{other}', other.caFile)
      .replace('{cert}', certFile)
      .replace('{key}', keyFile)
  )
}

describe('TLS to PostgreSQL', () => {
  it.each([
    ['127.0.0.1', '', undefined, false],
    ['127.0.0.1', '?sslmode=disable', undefined, false],
    ['127.0.0.1', '?sslmode=allow', undefined, false],
    ['127.0.0.1', '?sslmode=allow', 'encrypted', true],
    ['127.0.0.1', '?sslmode=prefer', undefined, true],
    ['127.0.0.1', '?sslmode=require', undefined, true],
    ['127.0.0.1', '?sslmode=require&sslrootcert={ca}', undefined, true],
    ['127.0.0.1', '?sslmode=verify-ca&sslrootcert={ca}', undefined, true],
    ['localhost', '?sslmode=verify-full&sslrootcert={ca}', undefined, true],
    ['localhost', '?sslrootcert={ca}', undefined, true],
    ['localhost', '?sslrootcert={ca}&sslcert={cert}&sslkey={key}', 'certified', true],
  ])(
    'the coordinator connects to PostgreSQL at %s with %s as user %s; the connection is encrypted: %s',
    async (host, query, user, isEncrypted) => {
      await using connection = connect(urlOf(withTls, host, query, user))
      await connection.ready()
      const rows = await connection.run(
        (sql) => sql`select ssl from pg_stat_ssl where pid = pg_backend_pid()`,
      )
      expect(rows).toEqual([{ ssl: isEncrypted }])
    },
  )

  it.each([
    ['127.0.0.1', '?sslmode=require&sslrootcert={other}', undefined, UNKNOWN_AUTHORITY],
    ['127.0.0.1', '?sslmode=verify-ca', undefined, UNKNOWN_AUTHORITY],
    ['127.0.0.1', '?sslmode=verify-full&sslrootcert={ca}', undefined, WRONG_NAME],
    ['127.0.0.1', '?sslrootcert={ca}', undefined, WRONG_NAME],
    ['localhost', '?sslmode=verify-full&sslrootcert=system', undefined, UNKNOWN_AUTHORITY],
    [
      '127.0.0.1',
      '?sslmode=disable',
      'encrypted',
      'the server does not allow this user, host or encryption (28000)',
    ],
    [
      'localhost',
      '?sslrootcert={ca}',
      'certified',
      'the server does not allow this user, host or encryption (28000)',
    ],
    ['127.0.0.1', '', 'limited', 'the server has too many clients (53300)'],
    ['127.0.0.1', '', 'unknown', 'the server rejects the user or the password (28P01)'],
    [
      '127.0.0.1',
      '?nonsense=1',
      undefined,
      'the server does not know a parameter of the URL (42704)',
    ],
  ])(
    'the coordinator reports why it cannot use PostgreSQL at %s with %s as user %s: %s',
    async (host, query, user, reason) => {
      await using connection = connect(urlOf(withTls, host, query, user))
      await eventually(() => expect(connection.state()).toMatchObject({ status: 'down', reason }))
      expect(connection.lines.join('')).not.toContain(PASSWORD)
    },
  )

  it('with sslmode=prefer the coordinator connects to a PostgreSQL server without TLS, and with sslmode=require it rejects such a server', async () => {
    await using plain = connect(urlOf(withoutTls, '127.0.0.1', '?sslmode=prefer'))
    await plain.ready()
    await using encrypted = connect(urlOf(withoutTls, '127.0.0.1', '?sslmode=require'))
    await eventually(() =>
      expect(encrypted.state()).toMatchObject({ reason: 'the server does not offer TLS' }),
    )
  })

  it('after the CA file was replaced, new connections to PostgreSQL use the new file, also for a certificate with an IP address', async () => {
    const caFile = join(authority.folder, 'rotated-ca.pem')
    await copyFile(authority.caFile, caFile)
    await using connection = connect(urlOf(withTls, 'localhost', ''), {
      DATABASE_CA_FILE: caFile,
    })
    await connection.ready()

    const next = await other.issue('next', 'IP:127.0.0.1,DNS:localhost')
    await withTls.rotate({ ...next, caFile: authority.caFile })
    await eventually(
      async () => {
        // The server loads its new certificate soon after this call, and uses it only for new connections.
        await withTls.sql`
          select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'test'`
        expect(connection.state()).toMatchObject({ status: 'down', reason: UNKNOWN_AUTHORITY })
      },
      { everyMs: 300 },
    )
    await copyFile(other.caFile, caFile)
    await connection.ready()
    await using byAddress = connect(urlOf(withTls, '127.0.0.1', '?sslrootcert={other}'))
    await byAddress.ready()
  })
})
