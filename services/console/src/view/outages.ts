/**
 * The conditions of services and backends that do not respond. Each cause has one condition, which names the services
 * that it stops, however many services and replicas report the cause.
 */
import type { ConditionName } from '@integration-host/shared/conditions'
import type { HealthReport } from '@integration-host/shared/observability/health'
import { pages } from '../isomorphic/pages.ts'
import { type Condition, condition, joined, listed } from './condition.ts'
import type { Installation, Replica, ServiceState } from './installation.ts'

/** A replica counts as unreachable after this many failed checks in a row. */
export const MISSES_UNTIL_DOWN = 3

/** The servers that several services depend on: their names, and the settings that say where they are. */
const SERVERS: Readonly<Record<string, { readonly name: string; readonly setting: string }>> = {
  redis: { name: 'Redis', setting: 'REDIS_URL' },
  rabbitmq: { name: 'RabbitMQ', setting: 'AMQP_URL' },
  postgres: { name: 'PostgreSQL', setting: 'DATABASE_URL' },
  provider: { name: 'The provider', setting: 'DISCOVERY_URL' },
}
const remedyOf = ({ name, setting }: { readonly name: string; readonly setting: string }): string =>
  name === 'The provider'
    ? `If it has no outage, repair the way to it: the network, a proxy, or ${setting}. The services connect again by themselves.`
    : `Start ${name}, or repair the way to it: the network, or ${setting} of these services. They connect again by themselves, and continue what they have accepted.`

/** Dependencies that are down whenever the dependency on the right is down, or that are another name of it. */
const PARTS: Readonly<Record<string, string>> = {
  'redis-replicated': 'redis',
  'redis-writes': 'redis',
  'credential-keys': 'redis',
}
const ALIASES: Readonly<Record<string, string>> = { discovery: 'provider' }

/**
 * The files that a service reports like dependencies. A person must correct them, so they have conditions of their own.
 * The titles follow the names of the services.
 */
const FILES: Readonly<Record<string, { readonly name: ConditionName; readonly title: string }>> = {
  processes: { name: 'ProcessFilesFailed', title: 'could not load all processes' },
  'service-keys-file': {
    name: 'ServiceKeysFileInvalid',
    title: 'cannot read the key file: an earlier list is still used',
  },
  'webhooks-file': {
    name: 'WebhooksFileInvalid',
    title: 'cannot read the webhooks file: an earlier list is still used',
  },
}

/** A replica that reports a dependency as down. */
interface Report {
  readonly service: ServiceState
  readonly replica: Replica
  readonly isStopped: boolean
  readonly dependency: string
  readonly since: number
  readonly reason: string
}

export function* outages({ services }: Installation): Generator<Condition> {
  const byCause = Map.groupBy(reports(services), (report) => causeOf(report, services))
  for (const service of services) {
    const down = service.replicas.filter(({ misses }) => misses >= MISSES_UNTIL_DOWN)
    if (down.length === 0) continue
    const isDown = down.length === service.replicas.length
    const stopped = isDown ? (byCause.get(service.name) ?? []) : []
    if (isDown) byCause.delete(service.name)
    yield condition('ServiceDown', {
      key: service.name,
      ...(!isDown && { severity: 'warning' }),
      title: isDown
        ? `${service.name} does not respond`
        : `${down.length} of ${service.replicas.length} replicas of ${service.name} do not respond`,
      detail: joined(
        listed(down.map(({ address, reason }) => `${address}: ${reason ?? 'no response'}`)),
        stoppedText(stopped),
      ),
      affected: 1 + new Set(stopped.map((report) => report.service.name)).size,
      knownSince: Math.min(...down.map(({ since }) => since)),
      labels: { job: [service.name], dependency: [service.name] },
      page: pages.health,
    })
  }
  for (const [cause, found] of byCause) {
    const names = [...new Set(found.map(({ service }) => service.name))]
    const server = SERVERS[cause]
    const file = FILES[cause]
    const isReadOnly = cause === 'redis-writes'
    const name = isReadOnly ? 'RedisRejectsWrites' : (file?.name ?? 'DependencyDown')
    yield condition(name, {
      key: cause,
      values: { service: names.join(', ') },
      ...(!found.some(({ isStopped }) => isStopped) && { severity: 'warning' }),
      ...(!isReadOnly && {
        title:
          file !== undefined
            ? `${listed(names)} ${file.title}`
            : server === undefined
              ? `${listed(names)} ${names.length === 1 ? 'waits' : 'wait'} for ${cause}`
              : `${server.name} cannot be reached`,
        ...(server !== undefined && { remedy: remedyOf(server) }),
      }),
      detail: joined(
        server === undefined ? '' : stoppedText(found),
        listed([...new Set(found.map(({ reason }) => reason))]),
      ),
      affected: names.length,
      knownSince: Math.min(...found.map(({ since }) => since)),
      labels: { dependency: [...new Set(found.map(({ dependency }) => dependency))] },
      page: pages.health,
    })
  }
}

const reports = (services: readonly ServiceState[]): readonly Report[] =>
  services.flatMap((service) =>
    service.replicas.flatMap((replica) =>
      downIn(replica).map(([dependency, { since, reason }]) => ({
        service,
        replica,
        isStopped: replica.report?.status === 'waiting',
        dependency,
        since: Date.parse(since),
        reason,
      })),
    ),
  )

type State = HealthReport['dependencies'][string]
const isDown = (entry: readonly [string, State]): entry is [string, State & { reason: string }] =>
  entry[1].status !== 'up'
const downIn = ({ misses, report }: Replica) =>
  misses > 0 || report === null ? [] : Object.entries(report.dependencies).filter(isDown)

/**
 * Returns what has to be restored: the server to which the dependency belongs, or what a service waits for on which the
 * dependency depends.
 */
function causeOf({ dependency, replica }: Report, services: readonly ServiceState[]): string {
  const whole = PARTS[dependency]
  const state = whole === undefined ? undefined : replica.report?.dependencies[whole]
  if (whole !== undefined && state !== undefined && state.status !== 'up') return whole
  const peer = services.find(({ name }) => name === dependency)
  const isWaiting = peer?.replicas.every(
    ({ misses, report }) => misses === 0 && report?.status === 'waiting',
  )
  const [first] = isWaiting === true ? (peer?.replicas.flatMap(downIn) ?? []) : []
  const cause = first?.[0] ?? dependency
  return ALIASES[cause] ?? cause
}

/** Returns a text such as `coordinator and token-service (1 of 2) wait for it; accounting-gateway works without it`. */
function stoppedText(all: readonly Report[]): string {
  const texts = [true, false].flatMap((isStopped) => {
    const byService = Map.groupBy(
      all.filter((report) => report.isStopped === isStopped),
      ({ service }) => service,
    )
    const names = [...byService].map(([{ name, replicas }, found]) => {
      const count = new Set(found.map(({ replica }) => replica)).size
      return count === replicas.length ? name : `${name} (${count} of ${replicas.length})`
    })
    if (names.length === 0) return []
    const [verb, rest] = isStopped ? ['wait', 'for it'] : ['work', 'without it']
    return `${listed(names)} ${verb}${names.length === 1 ? 's' : ''} ${rest}`
  })
  return texts.join('; ')
}
