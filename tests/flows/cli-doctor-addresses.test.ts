import { createAuthority } from '@integration-host/shared/test-support/certificates'
import { describe, expect, it } from 'vitest'
import { createRedisServers, type RedisServer } from '../support/backends/redis-servers.ts'
import { parseJsonLines, runCli } from '../support/processes/cli.ts'
import { backend } from '../support/system.ts'

/** An address at which no server listens. */
const DEAD = '127.0.0.1:2'

interface CheckResult {
  readonly Check: string
  readonly Verdict: string
  readonly Found: string
  readonly Mend: string | null
}

/**
 * Runs doctor for one backend. Returns the results of its checks `connection`, `role` and `kind`, as `verdict: found`.
 */
async function doctor(only: string, env: Record<string, string>) {
  const { stdout } = await runCli(['doctor', '--json', '--only', only], { env })
  const results = parseJsonLines<CheckResult>(stdout).filter(({ Check }) =>
    ['connection', 'role', 'kind'].includes(Check),
  )
  return {
    found: results.map(({ Verdict, Found }) => `${Verdict}: ${Found}`),
    remedies: results.flatMap(({ Mend }) => (Mend === null ? [] : [Mend])),
  }
}

describe('the doctor command with the addresses of backend clusters', () => {
  it('doctor checks each listed Redis server until it finds the primary', async () => {
    await using servers = await createRedisServers()
    const primary = await servers.start()
    const replica = await servers.start(`replicaof 127.0.0.1 ${primary.port}`)
    const listed = (...addresses: string[]) => ({
      REDIS_URL: `redis://:${servers.password}@${addresses.join()}`,
    })
    const all = await doctor('redis', listed(DEAD, replica.address, primary.address))
    expect(all.found).toEqual([
      `problem: ${DEAD}: no process listens there`,
      `ok: ${replica.address}`,
      `ok: ${primary.address}`,
    ])
    expect((await doctor('redis', listed(DEAD, replica.address))).found).toContain(
      'problem: none of the servers is the primary',
    )
  })

  it('doctor reports a problem if REDIS_URL leads to a Sentinel or to a Redis Cluster node', async () => {
    await using servers = await createRedisServers()
    const sentinel = await servers.startSentinel()
    const node = await servers.start('cluster-enabled yes')
    const found = async ({ address }: RedisServer) =>
      (await doctor('redis', { REDIS_URL: `redis://:${servers.password}@${address}` })).found
    expect(await found(sentinel)).toContain('problem: the server is a Sentinel')
    expect(await found(node)).toContain(
      'problem: Redis Cluster is not supported; use Sentinel or a single primary',
    )
  })

  it('doctor checks each listed RabbitMQ node', async () => {
    const broker = new URL(backend('TEST_AMQP_URL'))
    const AMQP_URL = broker.href.replace(broker.host, `${DEAD},${broker.host}`)
    expect((await doctor('rabbitmq', { AMQP_URL })).found).toEqual([
      `problem: ${DEAD}: no process listens there`,
      `ok: ${broker.host}`,
    ])
  })

  it('doctor reports why a TLS connection failed, and which setting to change', async () => {
    await using servers = await createRedisServers()
    await using authority = await createAuthority()
    await using stranger = await createAuthority()
    const { certFile, keyFile } = await authority.issue('server')
    const server = await servers.start(
      `tls-cert-file ${certFile}`,
      `tls-key-file ${keyFile}`,
      `tls-ca-cert-file ${authority.caFile}`,
      'tls-auth-clients no',
    )
    const REDIS_URL = `rediss://:${servers.password}@${server.address}`
    const trusting = await doctor('redis', { REDIS_URL, REDIS_CA_FILE: authority.caFile })
    expect(trusting.found).toEqual([`ok: ${server.address}`])
    const mistrusting = await doctor('redis', { REDIS_URL, REDIS_CA_FILE: stranger.caFile })
    expect(mistrusting).toEqual({
      found: [`problem: ${server.address}: the server's certificate is from an unknown authority`],
      remedies: [
        'Set REDIS_CA_FILE to the certificate of the authority that issued it (REDIS_URL)',
      ],
    })
  })
})
