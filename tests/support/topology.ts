import {
  changesTopology,
  credentialsTopology,
  ladder,
  processTopology,
  startTopology,
  webhooksTopology,
  signalKey,
} from '@integration-host/shared/contracts/topology'
import {
  changesQueue,
  onQueue,
  PROVIDER_EXCHANGE,
  entriesQueue,
} from '@integration-host/shared/contracts/provider-event'
import {
  COORDINATORS_EXCHANGE,
  TRANSACTIONS_EXCHANGE,
  WEBHOOK_PROCESS,
  WEBHOOK_STEP,
} from '@integration-host/shared/contracts/events'
import { connect } from 'amqplib'

const topologies = [
  ladder,
  credentialsTopology,
  processTopology('OrderProcess', ['order', 'report', 'csv']),
  startTopology('OrderProcess'),
]
/**
 * The names of the queues and exchanges that a system declares. They remain on the broker after the end of the
 * system's processes.
 */
export const queues = topologies.flatMap((topology) => topology.queues)
export const exchanges = [
  ...topologies.flatMap((topology) => topology.exchanges),
  { name: TRANSACTIONS_EXCHANGE, type: 'topic' },
  { name: COORDINATORS_EXCHANGE, type: 'fanout' },
] as const

/**
 * The queues that a coordinator declares only under a condition: `WEBHOOKS_FILE` is set, changes at the provider start
 * runs of a process (its member `on`), or a fault test runs its own process `OrderLine`.
 */
const optionalQueues = [
  webhooksTopology,
  processTopology(WEBHOOK_PROCESS, [WEBHOOK_STEP]),
  changesTopology(onQueue('OrderProcess'), 'OrderProcess', []),
  changesTopology(changesQueue('OrderProcess'), 'OrderProcess', []),
  changesTopology(entriesQueue('OrderProcess'), 'OrderProcess', []),
  startTopology('OrderProcess', signalKey('OrderProcess')),
  processTopology('ChangeFeed', ['read']),
  processTopology('ChangeLook', ['read']),
  processTopology('TakeBack', ['look', 'remove']),
  processTopology('OrderLine', ['line']),
  startTopology('OrderLine'),
  changesTopology(entriesQueue('OrderLine'), 'OrderLine', []),
].flatMap((topology) => topology.queues)

/** Every queue that a service may declare. */
export const allQueues = [...queues, ...optionalQueues]

/** The queue of `npm run bench -- webhooks`. */
export const BENCH_QUEUE = 'bench.provider'

/**
 * Deletes the queues and exchanges that a system declared under its prefix. Missing queues and exchanges are
 * ignored.
 */
export async function removeTopology(url: string, prefix: string): Promise<void> {
  const connection = await connect(url)
  const channel = await connection.createChannel()
  for (const { name } of [...allQueues, { name: BENCH_QUEUE }])
    await channel.deleteQueue(prefix + name)
  for (const { name } of [...exchanges, { name: PROVIDER_EXCHANGE }])
    await channel.deleteExchange(prefix + name)
  await connection.close()
}
