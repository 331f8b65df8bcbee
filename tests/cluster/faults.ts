/** The faults of `npm run test:cluster`. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '@integration-host/shared/random'
import { expect, until } from '../compose/check.ts'
import { type Cluster, type Machine, machines } from './cluster.ts'

export interface Fault {
  readonly name: string
  readonly does: string
  /** Whether the fault is one of those that run by default. */
  readonly isDefault: boolean
  /**
   * How long the provider accepts a refresh token after its rotation. It is 0 unless the fault kills a token-service: a
   * process that is killed between the provider's response and the commit takes the only copy of the new token with it.
   */
  readonly graceSeconds: number
  /** Causes the fault. `Cluster.repair` ends it. */
  cause(cluster: Cluster, random: Random): Promise<void>
}

const STRICT = 0

export const faults: readonly Fault[] = [
  {
    name: 'redis-isolated',
    does: 'the primary is cut off from its replicas and the Sentinels, not from its clients',
    isDefault: true,
    graceSeconds: STRICT,
    async cause(cluster) {
      const primary = await redisPrimary(cluster)
      await cluster.cut(`redis-${primary}`, [
        ...cluster.peers('redis', primary),
        ...machines.map((n) => cluster.address('sentinel', n)),
      ])
      await otherRedisPrimary(cluster, primary)
      await delay(8_000)
    },
  },
]

async function redisPrimary(cluster: Cluster): Promise<Machine> {
  const primary = await cluster.redisPrimary()
  expect(primary !== null, 'the Sentinels name no primary')
  return primary
}

/** Waits until Sentinel has promoted another Redis server. */
function otherRedisPrimary(cluster: Cluster, lost: Machine): Promise<void> {
  return until(
    'Sentinel has promoted a replica',
    async () => {
      const primary = await cluster.redisPrimary()
      return primary !== null && primary !== lost
    },
    60,
  )
}
