import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type RestartableRabbitMq,
  startRestartableRabbitMq,
} from '../../../../../tests/support/backends/restartable-servers.ts'
import {
  type Authority,
  type Certificate,
  createAuthority,
  rotatingFiles,
} from '../../../test-support/certificates.ts'
import { eventually } from '../../../test-support/eventually.ts'
import { freePort } from '../../../test-support/free-ports.ts'
import { openBus, type TestBus } from '../../../test-support/rabbitmq-client.ts'
import { tlsFiles } from '../../tls/tls-files.ts'

let authority: Authority
let stranger: Authority
let client: Certificate
let broker: RestartableRabbitMq
let tlsPort: number
beforeAll(async () => {
  authority = await createAuthority()
  stranger = await createAuthority()
  client = await authority.issue('client')
  tlsPort = await freePort()
  const { certFile, keyFile } = await authority.issue('server')
  broker = await startRestartableRabbitMq({
    plugins: ['rabbitmq_auth_mechanism_ssl'],
    lines: [
      `listeners.ssl.default = 127.0.0.1:${tlsPort}`,
      `ssl_options.cacertfile = ${authority.caFile}`,
      `ssl_options.certfile = ${certFile}`,
      `ssl_options.keyfile = ${keyFile}`,
      'ssl_options.verify = verify_peer',
      'ssl_options.fail_if_no_peer_cert = true',
      'ssl_cert_login_from = common_name',
      'auth_mechanisms.1 = PLAIN',
      'auth_mechanisms.2 = EXTERNAL',
    ],
  })
})
afterAll(async () => {
  for (const one of [broker, authority, stranger]) await one[Symbol.asyncDispose]()
})

/** Returns the broker's address with TLS. */
function address({ user = true, port = tlsPort } = {}): string {
  const { username, password } = new URL(broker.url)
  return `amqps://${user ? `${username}:${password}@` : ''}127.0.0.1:${port}`
}

const filesOf = (ca: Authority, own?: Certificate) =>
  tlsFiles('AMQP', {
    AMQP_CA_FILE: ca.caFile,
    AMQP_CERT_FILE: own?.certFile,
    AMQP_KEY_FILE: own?.keyFile,
  })

const expectDown = (connection: TestBus, reason: RegExp) =>
  eventually(() => expect(connection.reason()).toMatch(reason))

describe('a connection to RabbitMQ with TLS', () => {
  it('the client connects to RabbitMQ with a private certificate authority and a client certificate', async () => {
    await using connection = openBus(address(), filesOf(authority, client))
    await eventually(() => connection.publish())
  })

  it('the client logs in to RabbitMQ by its certificate if the address names no user', async () => {
    await using connection = openBus(address({ user: false }), filesOf(authority, client))
    // The broker has no user with the common name of the certificate yet.
    await expectDown(connection, /^ACCESS-REFUSED$/)
    await broker.control('add_user', 'client', 'unused')
    await broker.control('set_permissions', 'client', '.*', '.*', '.*')
    await eventually(() => connection.publish())
  })

  it('the client reports that the certificate of RabbitMQ is from an unknown authority', async () => {
    await using connection = openBus(address(), filesOf(stranger, client))
    await expectDown(connection, /^the server's certificate is from an unknown authority$/)
  })

  it('the client reports that RabbitMQ requires a client certificate', async () => {
    await using connection = openBus(address(), filesOf(authority))
    await expectDown(connection, /client certificate$/)
  })

  it('the client reports a RabbitMQ port that does not speak TLS', async () => {
    const port = Number(new URL(broker.url).port)
    await using connection = openBus(address({ port }), filesOf(authority, client))
    await expectDown(connection, /^the server does not speak TLS on this port$/)
  })

  it('the client connects to RabbitMQ with rotated TLS files without a restart', async () => {
    const { files, rotate } = rotatingFiles(authority.folder)
    await rotate(await stranger.issue('client'))
    await using connection = openBus(address(), filesOf(authority, files))
    await expectDown(connection, /client certificate$/)
    await rotate(client)
    await eventually(() => connection.publish())
  })
})
