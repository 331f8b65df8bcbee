import { addAbortListener } from 'node:events'
import {
  type CheckResult,
  ok,
  problem,
  checkVersion,
  warning,
} from '@integration-host/shared/observability/checks'
import {
  inequivalenceOf,
  versionOf,
} from '@integration-host/shared/messaging/rabbitmq/broker-errors'
import type { AmqpNode } from '@integration-host/shared/messaging/rabbitmq/address'
import type { TlsFiles } from '@integration-host/shared/tls/tls-files'
import type { ChannelModel } from 'amqplib'
import type { WantedQueue } from './broker-topology.ts'
import { DeadlinePassed, isReached, reached, unreachable } from './reach.ts'
import { resultsOf } from './results.ts'

const TIMEOUT_MS = 3_000

/**
 * Checks each node of a broker over AMQP, and the queues over the first node that can be used. The check creates
 * nothing on the broker.
 */
export async function examineRabbitMq(
  nodes: readonly AmqpNode[],
  tls: TlsFiles | undefined,
  queues: readonly WantedQueue[],
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const results: CheckResult[] = []
  for (const node of nodes) {
    const isFirst = !isReached(results)
    results.push(...(await examineNode(node, tls, isFirst ? queues : [], signal)))
  }
  return results
}

async function examineNode(
  node: AmqpNode,
  tls: TlsFiles | undefined,
  queues: readonly WantedQueue[],
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const { connect } = await import('amqplib')
  const { tlsOptions } = await import('@integration-host/shared/messaging/rabbitmq/connection')
  let model: ChannelModel | null = null
  const stop = (): void => void model?.close().catch(() => {})
  using _ = addAbortListener(signal, stop)
  try {
    model = await connect(node.url, {
      timeout: TIMEOUT_MS,
      clientProperties: { connection_name: 'doctor' },
      ...(node.usesTls && tlsOptions(node, tls)),
    })
    model.on('error', () => {})
    return [
      reached(node.name),
      checkVersion('rabbitmq', versionOf(model)),
      ...(queues.length === 0 ? [] : await checkQueues(model, queues)),
    ]
  } catch (error) {
    return [unreachable(node.name, 'AMQP_URL', signal.aborted ? new DeadlinePassed() : error)]
  } finally {
    await model?.close().catch(() => {})
  }
}

async function checkQueues(
  model: ChannelModel,
  queues: readonly WantedQueue[],
): Promise<CheckResult[]> {
  const missing: string[] = []
  const drifted: CheckResult[] = []
  for (const queue of queues) {
    // Each queue is checked on a separate channel, because the broker closes the channel at every error.
    const channel = await model.createChannel()
    channel.on('error', () => {})
    try {
      // The passive declaration comes first and fails if the queue is missing. The active declaration would create the
      // missing queue.
      await channel.checkQueue(queue.name)
      await channel.assertQueue(queue.name, { durable: true, arguments: queue.arguments })
      await channel.close()
    } catch (error) {
      const differs = inequivalenceOf(error)
      if (differs !== null)
        drifted.push(
          driftProblem(queue.name, [
            `${differs.setting} is ${differs.found}, needs ${differs.wanted}`,
          ]),
        )
      else if ((error as { code?: unknown }).code === 404) missing.push(queue.name)
      else if ((error as { code?: unknown }).code === 403) return [permissionProblem(queue.name)]
      else throw error
    }
  }
  return summary(queues.length, missing, drifted)
}

const permissionProblem = (name: string): CheckResult =>
  problem(
    'permissions',
    `the user may not declare ${name}`,
    "Let it configure, write and read: rabbitmqctl set_permissions -p VHOST USER '.*' '.*' '.*'",
  )

/** Returns the check result of a queue whose arguments differ from those that the services declare. */
export const driftProblem = (name: string, differs: readonly string[]): CheckResult =>
  problem(
    'queue',
    `${name}: ${differs.join('; ')}`,
    'Delete the queue; the services declare it again. docs/rabbitmq.md says what happens to its messages.',
  )

/** Returns check results that summarise all queues. */
export function summary(
  count: number,
  missing: readonly string[],
  drifted: readonly CheckResult[],
): CheckResult[] {
  const right = count - missing.length - drifted.length
  return resultsOf(
    right > 0 && ok('queues', `${right} of ${count} are correct`),
    missing.length > 0 &&
      warning(
        'queues',
        `missing: ${missing.slice(0, 3).join(', ')}${missing.length > 3 ? `, and ${missing.length - 3} more` : ''}`,
        'Start a coordinator, which declares them.',
      ),
    drifted,
  )
}
