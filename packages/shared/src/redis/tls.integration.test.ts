import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:tls'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createRedisServers,
  type RedisServer,
  type RedisServers,
} from '../../../../tests/support/backends/redis-servers.ts'
import {
  type Authority,
  type Certificate,
  createAuthority,
  LOOPBACK_NAMES,
  rotatingFiles,
} from '../../test-support/certificates.ts'
import { eventually } from '../../test-support/eventually.ts'
import { openRedis, type TestConnection } from '../../test-support/redis-client.ts'
import { tlsFiles } from '../tls/tls-files.ts'

let servers: RedisServers
let authority: Authority
let stranger: Authority
/** A Redis server that requires a client certificate of `authority`. */
let server: RedisServer
let client: Certificate
let strangersClient: Certificate
beforeAll(async () => {
  ;[servers, authority, stranger] = await Promise.all([
    createRedisServers(),
    createAuthority(),
    createAuthority(),
  ])
  client = await authority.issue('client')
  strangersClient = await stranger.issue('client')
  server = await servers.start(...tlsLines(await authority.issue('server')))
})
afterAll(async () => {
  for (const one of [servers, authority, stranger]) await one[Symbol.asyncDispose]()
})

const tlsLines = ({ certFile, keyFile }: Certificate): string[] => [
  `tls-cert-file ${certFile}`,
  `tls-key-file ${keyFile}`,
  `tls-ca-cert-file ${authority.caFile}`,
  'tls-replication yes',
]

const addressOf = ({ port }: RedisServer, host = '127.0.0.1'): string =>
  `rediss://:${servers.password}@${host}:${port}`

const filesOf = (ca: Authority, own?: Certificate) =>
  tlsFiles('REDIS', {
    REDIS_CA_FILE: ca.caFile,
    REDIS_CERT_FILE: own?.certFile,
    REDIS_KEY_FILE: own?.keyFile,
  })

const expectUp = (connection: TestConnection) =>
  eventually(() => expect(connection.state()).toMatchObject({ status: 'up' }))
const expectDown = (connection: TestConnection, reason: string) =>
  eventually(() => expect(connection.reason()).toBe(reason))

describe('a connection to Redis with TLS', () => {
  it('the client connects to Redis with a private certificate authority and a client certificate', async () => {
    await using connection = openRedis(addressOf(server), filesOf(authority, client))
    await expectUp(connection)
    await connection.redis.set('key', 'value')
  })

  it('the client connects over TLS to the primary among several Redis servers', async () => {
    const own = tlsLines(await authority.issue('replica'))
    const replica = await servers.start(...own, `replicaof 127.0.0.1 ${server.port}`)
    const url = addressOf(replica).replace(/$/, `,${server.address}`)
    await using connection = openRedis(url, filesOf(authority, client))
    await expectUp(connection)
  })

  it('the client queries Sentinels for the Redis primary over TLS', async () => {
    const sentinel = await servers.startSentinel(
      ...tlsLines(await authority.issue('sentinel')),
      `sentinel monitor main 127.0.0.1 ${server.port} 1`,
      `sentinel auth-pass main ${servers.password}`,
    )
    const url = `rediss+sentinel://:${servers.password}@${sentinel.address}/main?sentinel_password=${servers.password}`
    await using connection = openRedis(url, filesOf(authority, client))
    await expectUp(connection)
    await using wrong = openRedis(url, filesOf(stranger, client))
    await expectDown(
      wrong,
      `Sentinel ${sentinel.address}: the server's certificate is from an unknown authority`,
    )
  })

  it('the client sends the host name in the TLS handshake, so that a proxy can select the Redis server by this name', async () => {
    const { certFile, keyFile } = await authority.issue('proxy')
    const names: unknown[] = []
    const proxy = createServer({ cert: await readFile(certFile), key: await readFile(keyFile) })
    proxy.on('secureConnection', (socket) => {
      names.push(socket.servername)
      socket.on('error', () => {}).destroy()
    })
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    const { port } = proxy.address() as AddressInfo
    await using connection = openRedis(`rediss://localhost:${port}`, filesOf(authority))
    await eventually(() => expect(names).toContain('localhost'))
    await expectDown(connection, 'connection closed')
    proxy.close()
  })

  it('the client reports that the certificate of Redis is from an unknown authority', async () => {
    await using connection = openRedis(addressOf(server), filesOf(stranger, client))
    await expectDown(connection, "the server's certificate is from an unknown authority")
  })

  it('the client reports that Redis requires a client certificate', async () => {
    await using connection = openRedis(addressOf(server), filesOf(authority))
    await expectDown(connection, 'the server requires a client certificate')
  })

  it('the client reports that Redis does not know the authority of the client certificate', async () => {
    await using connection = openRedis(addressOf(server), filesOf(authority, strangersClient))
    await expectDown(connection, 'the server does not know the authority of the client certificate')
  })

  it('the client reports that its certificate for Redis has expired', async () => {
    const expired = await authority.issue('expired-client', LOOPBACK_NAMES, 'expired')
    await using connection = openRedis(addressOf(server), filesOf(authority, expired))
    await expectDown(connection, 'the client certificate has expired')
  })

  it('the client reports that the certificate of Redis has expired', async () => {
    const lines = tlsLines(await authority.issue('expired-server', LOOPBACK_NAMES, 'expired'))
    const expired = await servers.start(...lines)
    await using connection = openRedis(addressOf(expired), filesOf(authority, client))
    await expectDown(connection, "the server's certificate has expired")
  })

  it('the client reports that the certificate of Redis is for another host name', async () => {
    const lines = tlsLines(await authority.issue('elsewhere', 'DNS:elsewhere.test'))
    const elsewhere = await servers.start(...lines)
    await using connection = openRedis(addressOf(elsewhere), filesOf(authority, client))
    await expectDown(connection, "the host name does not match the server's certificate")
  })

  it('the client reports a Redis server that does not speak TLS', async () => {
    const plain = await servers.start()
    await using connection = openRedis(addressOf(plain), filesOf(authority, client))
    await expectDown(
      connection,
      'the server does not respond to the TLS handshake: it may not speak TLS on this port',
    )
  })

  it('the client connects to Redis with rotated TLS files without a restart', async () => {
    const { files, rotate } = rotatingFiles(authority.folder)
    await rotate(strangersClient)
    await using connection = openRedis(addressOf(server), filesOf(authority, files))
    await expectDown(connection, 'the server does not know the authority of the client certificate')
    await rotate(client)
    await expectUp(connection)
  })
})
