import { isLoopback } from '@integration-host/shared/http/origin-guard'
import { type CheckResult, skipped, warning } from '@integration-host/shared/observability/checks'
import { type AmqpNode, parseAmqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import type { Secret } from '@integration-host/shared/secrets/secret'
import type { TlsFiles } from '@integration-host/shared/tls/tls-files'
import { type ProcessOutline, wantedQueues } from './broker-topology.ts'
import { examineManagement, type Management } from './management.ts'
import { examineRabbitMq } from './rabbitmq.ts'
import { isReached } from './reach.ts'
import { resultsOf } from './results.ts'

export interface BrokerSettings {
  readonly tls: TlsFiles | undefined
  readonly AMQP_PREFIX: string
  readonly AMQP_MANAGEMENT_URL?: Secret | undefined
}

/**
 * Checks the broker and its queues by the management API, or over AMQP if the management API cannot be used.
 * `processes` are the coordinator's processes; each step of a process has a queue. `processes` is `null` if the
 * coordinator does not list its processes.
 */
export async function examineBroker(
  url: Secret,
  settings: BrokerSettings,
  processes: readonly ProcessOutline[] | null,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const queues = wantedQueues(processes ?? [], settings.AMQP_PREFIX)
  const unknown =
    processes === null
      ? skipped(
          'queues',
          'those of processes: the coordinator does not list its processes',
          'Start the coordinator, or set COORDINATOR_URL and SERVICE_API_KEY.',
        )
      : null
  const nodes = parseAmqpUrl(url.reveal())
  const management = managementOf(nodes[0], settings)
  const managed = management === null ? null : await examineManagement(management, queues, signal)
  const hasManagement = managed !== null && 'results' in managed
  const overAmqp = await examineRabbitMq(nodes, settings.tls, hasManagement ? [] : queues, signal)
  if (!isReached(overAmqp)) return overAmqp
  if (hasManagement) return resultsOf(overAmqp, managed.results, unknown)
  const why = managed === null ? 'AMQP_MANAGEMENT_URL is not set' : `management API: ${managed.why}`
  const remedy =
    'Set AMQP_MANAGEMENT_URL to its address with a user who has the tag monitoring: http://user:password@host:15672'
  return resultsOf(
    overAmqp,
    unknown,
    (settings.AMQP_MANAGEMENT_URL === undefined ? skipped : warning)('policies', why, remedy),
  )
}

/** The ports of AMQP without and with TLS. */
const DEFAULT_PORTS = ['', '5672', '5671']

/**
 * Returns the management API at AMQP_MANAGEMENT_URL. Without this setting, returns the management API at its default
 * port if the broker runs on this machine at a default port. Otherwise returns `null`, because the management API at
 * the default port may belong to another broker.
 */
function managementOf(node: AmqpNode, settings: BrokerSettings): Management | null {
  const broker = new URL(node.url)
  const vhost = decodeURIComponent(broker.pathname.slice(1)) || '/'
  const isLocal = isLoopback(broker.hostname) && DEFAULT_PORTS.includes(broker.port)
  if (settings.AMQP_MANAGEMENT_URL === undefined && !isLocal) return null
  const at =
    settings.AMQP_MANAGEMENT_URL === undefined
      ? new URL(`http://${broker.hostname}:15672`)
      : new URL(settings.AMQP_MANAGEMENT_URL.reveal())
  const user = at.username === '' ? broker : at
  const credentials = [user.username || 'guest', user.password || 'guest'].map(decodeURIComponent)
  return {
    url: at.origin + at.pathname.replace(/(?<!\/)\/+$/, ''),
    authorization: `Basic ${Buffer.from(credentials.join(':')).toString('base64')}`,
    vhost,
    prefix: settings.AMQP_PREFIX,
  }
}
