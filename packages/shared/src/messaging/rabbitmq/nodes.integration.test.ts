import { describe, expect, it } from 'vitest'
import { eventually } from '../../../test-support/eventually.ts'
import { type Relay, startRelay } from '../../../test-support/relay.ts'
import { openBus } from '../../../test-support/rabbitmq-client.ts'

/** Ports on which no server listens. */
const DEAD = '127.0.0.1:1'
const ALSO_DEAD = '127.0.0.1:2'

const startNode = (): Promise<Relay> => startRelay(process.env['TEST_AMQP_URL'] ?? '', 5_672)

/** Returns the broker's URL with its host replaced by these nodes. */
const listed = (...nodes: readonly (Relay | string)[]): string => {
  const broker = new URL(process.env['TEST_AMQP_URL'] ?? '')
  const hosts = nodes.map((node) => (typeof node === 'string' ? node : new URL(node.url).host))
  return broker.href.replace(broker.host, hosts.join())
}

describe('a list of RabbitMQ nodes', () => {
  it('the client connects to the listed RabbitMQ node that is alive, although the other nodes are dead', async () => {
    await using node = await startNode()
    await using connection = openBus(listed(DEAD, node, ALSO_DEAD))
    await connection.bus.ready()
    expect(connection.reason()).toBe('')
  })

  it('the client connects to the RabbitMQ node that responds, although another node accepts connections without responding', async () => {
    await using frozen = await startNode()
    frozen.stall()
    await using node = await startNode()
    await using connection = openBus(listed(frozen, node))
    await connection.bus.ready()
    expect(node.connections).toBe(1)
  })

  it('the client publishes to another RabbitMQ node when the connected node dies', async () => {
    await using one = await startNode()
    await using other = await startNode()
    await using connection = openBus(listed(one, other))
    await connection.bus.ready()
    const [connected, next] = one.connections > 0 ? [one, other] : [other, one]
    connected.away()
    await eventually(() => connection.publish())
    expect(next.connections).toBe(1)
    // The node that was unavailable becomes available again, and then the current node becomes unavailable. The client
    // must return to the node that is available.
    connected.restore()
    next.away()
    await eventually(() => connection.publish())
  })

  it('the client logs only once why none of the listed RabbitMQ nodes can be used, although it retries', async () => {
    await using refusing = await startNode()
    refusing.away('end')
    await using connection = openBus(listed(DEAD, refusing))
    const { host } = new URL(refusing.url)
    await eventually(() =>
      expect(connection.reason()).toBe(`${DEAD}: ECONNREFUSED; ${host}: ended the handshake`),
    )
    const { connections } = refusing
    await eventually(() => expect(refusing.connections).toBeGreaterThan(connections + 2))
    expect(connection.lines.filter(({ msg }) => msg === 'dependency is down')).toHaveLength(1)
    const { password } = new URL(refusing.url)
    if (password !== 'guest') expect(JSON.stringify(connection.lines)).not.toContain(password)
  })
})
