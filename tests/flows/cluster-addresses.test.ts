import { connectCompany } from '../support/clients/user-actions.ts'
import { createAuthority } from '@integration-host/shared/test-support/certificates'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import { describe, expect, it } from 'vitest'
import { createRedisServers } from '../support/backends/redis-servers.ts'
import { startRestartableRabbitMq } from '../support/backends/restartable-servers.ts'
import { startSystem } from '../support/system.ts'

/** An address at which no server listens. */
const DEAD = '127.0.0.1:2'

describe('services that are configured with the addresses of clusters', () => {
  it('token-service, gateway and coordinator use Sentinels and a list of RabbitMQ nodes over TLS with client certificates', async () => {
    await using opened = new AsyncDisposableStack()
    const authority = opened.use(await createAuthority())
    const { certFile, keyFile } = await authority.issue('server')
    const client = await authority.issue('client')

    const servers = opened.use(await createRedisServers())
    const tls = [
      `tls-cert-file ${certFile}`,
      `tls-key-file ${keyFile}`,
      `tls-ca-cert-file ${authority.caFile}`,
      'tls-replication yes',
    ]
    const primary = await servers.start(...tls)
    const sentinel = await servers.startSentinel(
      ...tls,
      `sentinel monitor main 127.0.0.1 ${primary.port} 1`,
      `sentinel auth-pass main ${servers.password}`,
    )
    const redis = {
      REDIS_URL: `rediss+sentinel://:${servers.password}@${DEAD},${sentinel.address}/main?sentinel_password=${servers.password}`,
      REDIS_CA_FILE: authority.caFile,
      REDIS_CERT_FILE: client.certFile,
      REDIS_KEY_FILE: client.keyFile,
    }

    const tlsPort = await freePort()
    const broker = opened.use(
      await startRestartableRabbitMq({
        plugins: [],
        lines: [
          `listeners.ssl.default = 127.0.0.1:${tlsPort}`,
          `ssl_options.cacertfile = ${authority.caFile}`,
          `ssl_options.certfile = ${certFile}`,
          `ssl_options.keyfile = ${keyFile}`,
          'ssl_options.verify = verify_peer',
          'ssl_options.fail_if_no_peer_cert = true',
        ],
      }),
    )
    const { username, password } = new URL(broker.url)
    const amqp = {
      AMQP_URL: `amqps://${username}:${password}@${DEAD},127.0.0.1:${tlsPort}`,
      AMQP_CA_FILE: authority.caFile,
      AMQP_CERT_FILE: client.certFile,
      AMQP_KEY_FILE: client.keyFile,
    }

    const system = opened.use(await startSystem(['sandbox-provider']))
    const names = ['token-service', 'accounting-gateway', 'coordinator'] as const
    for (const name of names)
      system.start(name, name === 'coordinator' ? amqp : { ...redis, ...amqp })
    await system.ready(...names)
    await connectCompany(system, '1')

    const health = await system.call(`${system.url('accounting-gateway')}/health/ready`)
    expect(await health.json()).toMatchObject({
      dependencies: { redis: { status: 'up' }, rabbitmq: { status: 'up' } },
    })
    for (const name of names)
      for (const secret of [servers.password, password])
        expect(system.service(name).output()).not.toContain(secret)
  })
})
