/** The faults of `npm run test:cluster`. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '@integration-host/shared/test-support/random'
import type { Cluster, Machine, Release } from './cluster.ts'
import {
  cutPostgresPrimary,
  oneOf,
  otherRedisPrimary,
  postgresPrimary,
  promoteStandby,
  redisPrimary,
  restartInTurn,
} from './fault-steps.ts'

export interface Fault {
  readonly name: string
  readonly does: string
  /** Whether a run causes this fault if the command line of the run names no faults. */
  readonly isDefault?: true
  /**
   * How long the provider accepts a refresh token after its rotation; 0 by default. A fault that stops a token-service
   * needs a grace period. Otherwise the grant is lost if the process is stopped between the provider's response and the
   * commit, because this process has the only copy of the new token.
   */
  readonly graceSeconds?: number
  /** The release that the services run when the load starts; the current release by default. */
  readonly startsOn?: Release
  /** Whether the fault is planned maintenance, during which every call must succeed by its third attempt. */
  readonly isPlannedWork?: true
  /** Causes the fault. `Cluster.repair` ends it. */
  cause(cluster: Cluster, random: Random): Promise<void>
}

const GRACE_SECONDS = 60
/** How long the lost server stays unavailable after the failover. The services must work without this server. */
const HOLD_MS = 5_000

const redis: readonly Fault[] = [
  {
    name: 'redis-isolated',
    does: 'the primary is cut off from its replicas and the Sentinels, not from its clients',
    isDefault: true,
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.cut(`redis-${primary}`, cluster.redisPeers(primary))
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-deaf',
    does: 'the primary receives nothing from its replicas and the Sentinels; they receive what it sends',
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.cut(`redis-${primary}`, cluster.redisPeers(primary), 'to')
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-lagging',
    does: 'the primary is killed when its replicas have received nothing for 1 to 2 s',
    isDefault: true,
    async cause(cluster, random) {
      const primary = await redisPrimary(cluster)
      await cluster.cut(`redis-${primary}`, cluster.peers('redis', primary))
      await delay(1_000 + 1_000 * random())
      await cluster.kill(`redis-${primary}`)
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-killed',
    does: 'the primary is killed',
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.kill(`redis-${primary}`)
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-frozen',
    does: 'the primary freezes until a replica was promoted, and continues as an outdated primary',
    isDefault: true,
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.pause(`redis-${primary}`)
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-unplugged',
    does: 'the primary is cut off from everything',
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.cut(`redis-${primary}`)
      await otherRedisPrimary(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-replicas-killed',
    does: 'both replicas are killed for 10 s',
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.kill(...cluster.others(primary).map((n) => `redis-${n}`))
      await delay(2 * HOLD_MS)
    },
  },
  {
    name: 'redis-all-killed',
    does: 'all Redis servers are killed, and restarted after 5 s with their data',
    async cause(cluster) {
      await cluster.kill('redis-1', 'redis-2', 'redis-3')
      await delay(HOLD_MS)
    },
  },
  {
    name: 'redis-upgraded',
    does: 'all Redis servers and Sentinels are restarted in turn, the primary last, after a planned failover with paused writes',
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      for (const n of cluster.others(primary))
        await restartInTurn(cluster, [[`redis-${n}`], [`sentinel-${n}`]])
      // Sentinel promotes a replica before it demotes the primary. In the time between, both servers would accept
      // writes. The writes to the previous primary would be lost, although the other replica acknowledges these writes.
      // Therefore writes are paused during the failover.
      const pause = ['redis-cli', 'CLIENT', 'PAUSE', '10000', 'WRITE']
      await cluster.exec(`redis-${primary}`, ...pause)
      const failover = ['redis-cli', '-p', '26379', 'SENTINEL', 'FAILOVER', 'main']
      await cluster.exec(`sentinel-${primary}`, ...failover)
      await otherRedisPrimary(cluster, primary)
      await cluster.untilBackendsComplete()
      await restartInTurn(cluster, [[`redis-${primary}`], [`sentinel-${primary}`]])
    },
  },
]

const rabbitmq: readonly Fault[] = [
  {
    name: 'rabbitmq-killed',
    does: 'a node is killed',
    isDefault: true,
    async cause(cluster, random) {
      await cluster.kill(`rabbitmq-${oneOf([1, 2, 3], random)}`)
      await delay(2 * HOLD_MS)
    },
  },
  {
    name: 'rabbitmq-isolated',
    does: 'a node is cut off from the others, not from its clients',
    isDefault: true,
    async cause(cluster, random) {
      const node = oneOf([1, 2, 3] as const, random)
      await cluster.cut(`rabbitmq-${node}`, cluster.peers('rabbitmq', node))
      // The node notices the partition after 8 s (`net_ticktime`). It is in the minority, so it then pauses itself.
      await delay(8_000 + HOLD_MS)
    },
  },
  {
    name: 'rabbitmq-frozen',
    does: 'a node freezes for 15 s',
    async cause(cluster, random) {
      await cluster.pause(`rabbitmq-${oneOf([1, 2, 3], random)}`)
      await delay(3 * HOLD_MS)
    },
  },
  {
    name: 'rabbitmq-majority-killed',
    does: 'two of the three nodes are killed for 10 s',
    async cause(cluster, random) {
      const kept = oneOf([1, 2, 3] as const, random)
      await cluster.kill(...cluster.others(kept).map((n) => `rabbitmq-${n}`))
      await delay(2 * HOLD_MS)
    },
  },
  {
    name: 'rabbitmq-replaced',
    does: 'all nodes are killed and replaced with empty ones, so that every queue and message is lost',
    async cause(cluster) {
      const nodes = ['rabbitmq-1', 'rabbitmq-2', 'rabbitmq-3']
      await cluster.kill(...nodes)
      await cluster.replace(...nodes)
    },
  },
  {
    name: 'rabbitmq-upgraded',
    does: 'all nodes are restarted in turn',
    cause: (cluster) => restartInTurn(cluster, [['rabbitmq-1'], ['rabbitmq-2'], ['rabbitmq-3']]),
  },
]

const postgres: readonly Fault[] = [
  {
    name: 'postgres-killed',
    does: 'the primary is killed, and a standby is promoted after 3 s',
    isDefault: true,
    async cause(cluster) {
      const primary = await postgresPrimary(cluster)
      await cluster.kill(`postgres-${primary}`)
      await delay(3_000)
      await promoteStandby(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'postgres-isolated',
    does: 'the primary is cut off from its standbys, not from its clients; a standby is promoted after 3 s',
    isDefault: true,
    cause: async (cluster) =>
      cutPostgresPrimary(cluster, cluster.peers('postgres', await postgresPrimary(cluster))),
  },
  {
    name: 'postgres-unplugged',
    does: 'the primary is cut off from everything, and a standby is promoted after 3 s',
    cause: (cluster) => cutPostgresPrimary(cluster),
  },
  {
    name: 'postgres-lagging',
    does: 'one standby has received nothing for 1 to 2 s when the primary is killed and the other is promoted',
    async cause(cluster, random) {
      const primary = await postgresPrimary(cluster)
      const lagging = oneOf(cluster.others(primary), random)
      await cluster.cut(`postgres-${lagging}`, [cluster.address('postgres', primary)])
      await delay(1_000 + 1_000 * random())
      await cluster.kill(`postgres-${primary}`)
      await cluster.join()
      await delay(3_000)
      await promoteStandby(cluster, primary)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'postgres-standby-frozen',
    does: 'one of the two standbys freezes for 10 s',
    async cause(cluster, random) {
      const primary = await postgresPrimary(cluster)
      await cluster.pause(`postgres-${oneOf(cluster.others(primary), random)}`)
      await delay(2 * HOLD_MS)
    },
  },
  {
    name: 'postgres-standbys-frozen',
    does: 'both standbys freeze for 20 s, so that no commit is acknowledged',
    async cause(cluster) {
      const primary = await postgresPrimary(cluster)
      await cluster.pause(...cluster.others(primary).map((n) => `postgres-${n}`))
      await delay(4 * HOLD_MS)
    },
  },
  {
    name: 'postgres-upgraded',
    does: 'the standbys are restarted in turn, then one is promoted and the primary becomes a standby',
    async cause(cluster) {
      const primary = await postgresPrimary(cluster)
      await restartInTurn(
        cluster,
        cluster.others(primary).map((n) => [`postgres-${n}`]),
      )
      await cluster.stop(`postgres-${primary}`)
      await promoteStandby(cluster, primary)
    },
  },
]

const machineFaults: readonly Fault[] = [
  {
    name: 'machine-killed',
    does: 'the machine of the Redis primary is lost with all servers and services on it',
    isDefault: true,
    graceSeconds: GRACE_SECONDS,
    cause: (cluster) =>
      loseMachine(cluster, (machine) => cluster.kill(...cluster.containersOf(machine))),
  },
  {
    name: 'machine-unplugged',
    does: 'the machine of the Redis primary loses its network, with all servers and services on it',
    graceSeconds: GRACE_SECONDS,
    cause: (cluster) =>
      loseMachine(cluster, async (machine) => {
        for (const name of cluster.containersOf(machine)) await cluster.cut(name)
      }),
  },
  {
    name: 'machine-frozen',
    does: 'the machine of the Redis primary freezes with all servers and services on it',
    graceSeconds: GRACE_SECONDS,
    cause: (cluster) =>
      loseMachine(cluster, (machine) => cluster.pause(...cluster.containersOf(machine))),
  },
]

async function loseMachine(
  cluster: Cluster,
  lose: (machine: Machine) => Promise<void>,
): Promise<void> {
  const machine = await redisPrimary(cluster)
  const database = await postgresPrimary(cluster)
  await lose(machine)
  if (database === machine) {
    await delay(3_000)
    await promoteStandby(cluster, machine)
  }
  await otherRedisPrimary(cluster, machine)
  await delay(HOLD_MS)
  // Fencing: the outdated primary must not accept writes when its machine returns, so it is killed. When it starts
  // again, it copies the data of the new primary.
  if (database === machine) await cluster.kill(`postgres-${machine}`)
}

const services: readonly Fault[] = [
  {
    name: 'services-upgraded',
    does: 'the first replicas of all services are stopped and started, then the second ones',
    isDefault: true,
    isPlannedWork: true,
    cause: (cluster) =>
      restartInTurn(
        cluster,
        [1, 2].map((n) => cluster.services.map((service) => `${service}-${n}`)),
      ),
  },
  {
    name: 'services-upgraded-from-first-release',
    does: 'all replicas of the first release are replaced in turn with replicas of this version',
    startsOn: 'first release',
    isPlannedWork: true,
    async cause(cluster) {
      for (const service of cluster.services)
        for (const n of [1, 2]) {
          await cluster.upgrade(`${service}-${n}`)
          await cluster.untilServicesReady()
        }
    },
  },
  {
    name: 'token-service-killed',
    does: 'a token-service is killed',
    graceSeconds: GRACE_SECONDS,
    async cause(cluster, random) {
      await cluster.kill(`token-service-${oneOf([1, 2], random)}`)
      await delay(HOLD_MS)
    },
  },
  {
    name: 'coordinator-killed',
    does: 'a coordinator is killed',
    async cause(cluster, random) {
      await cluster.kill(`coordinator-${oneOf([1, 2], random)}`)
      await delay(2 * HOLD_MS)
    },
  },
  {
    name: 'clock-ahead',
    does: 'a token-service and a coordinator run with a clock that is five minutes ahead',
    isDefault: true,
    async cause(cluster) {
      await cluster.stop('token-service-2', 'coordinator-2')
      await cluster.compose(
        'up',
        '--detach',
        '--no-build',
        'token-service-ahead',
        'coordinator-ahead',
      )
      await delay(2 * HOLD_MS)
      await cluster.compose('stop', 'token-service-ahead', 'coordinator-ahead')
    },
  },
]

export const faults: readonly Fault[] = [
  ...redis,
  ...rabbitmq,
  ...postgres,
  ...machineFaults,
  ...services,
]
