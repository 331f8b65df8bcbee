import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '@integration-host/shared/test-support/random'
import { expect } from '../compose/check.ts'
import type { Cluster, Machine } from './cluster.ts'

const FAILOVER_SECONDS = 60
/** How long the PostgreSQL primary is unavailable before a standby is promoted. */
const PROMOTION_AFTER_MS = 3_000
const HOLD_MS = 5_000

/** Returns a random entry of a list that is not empty. */
export function oneOf<Entry>(entries: readonly Entry[], random: Random): Entry {
  const entry = entries[Math.floor(random() * entries.length)]
  if (entry === undefined) throw new RangeError('the list to choose from is empty')
  return entry
}

export async function redisPrimary(cluster: Cluster): Promise<Machine> {
  const primary = await cluster.redisPrimary()
  expect(primary !== null, 'the Sentinels name no primary')
  return primary
}

/** Waits until Sentinel has promoted another Redis server. */
export function otherRedisPrimary(cluster: Cluster, lost: Machine): Promise<void> {
  return cluster.until(
    'Sentinel has promoted a replica',
    async () => {
      const primary = await cluster.redisPrimary()
      return primary !== null && primary !== lost
    },
    FAILOVER_SECONDS,
  )
}

export async function postgresPrimary(cluster: Cluster): Promise<Machine> {
  const primary = await cluster.postgresPrimary()
  expect(primary !== null, 'the number of PostgreSQL primaries is not 1')
  return primary
}

/**
 * Promotes the PostgreSQL standby that has received most of the write-ahead log, and makes the other standby follow it.
 * Every acknowledged commit is on at least one standby, so the promoted standby has all acknowledged commits. Only the
 * other standby may lack the latest commits.
 */
export async function promoteStandby(cluster: Cluster, lost: Machine): Promise<void> {
  const received = `SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')`
  const standbys = await Promise.all(
    cluster.others(lost).map(async (machine) => ({
      machine,
      position: Number((await cluster.query(machine, received)) ?? Number.NaN),
    })),
  )
  const [best] = standbys
    .filter(({ position }) => position > 0)
    .toSorted((a, b) => b.position - a.position)
  expect(best !== undefined, 'no standby responds')
  const promoted = await cluster.query(best.machine, 'SELECT pg_promote(true, 20)', 25)
  expect(promoted === 't', `PostgreSQL ${best.machine} was not promoted`)
  // The other standby gets the address of a single server. A standby ignores `connect_timeout`, so with a list of
  // servers it would wait for a dead server until TCP times out.
  const other = cluster.others(lost).find((machine) => machine !== best.machine)
  if (other === undefined) return
  const address = cluster.address('postgres', best.machine)
  const source = `host=${address} user=postgres application_name=postgres${other}`
  await cluster.query(other, `ALTER SYSTEM SET primary_conninfo = '${source}'`)
  await cluster.query(other, 'SELECT pg_reload_conf()')
}

/** Cuts the PostgreSQL primary off from `peers`, or from all servers if `peers` is absent, and promotes a standby. */
export async function cutPostgresPrimary(
  cluster: Cluster,
  peers?: readonly string[],
): Promise<void> {
  const primary = await postgresPrimary(cluster)
  await cluster.cut(`postgres-${primary}`, peers)
  await delay(PROMOTION_AFTER_MS)
  await promoteStandby(cluster, primary)
  await delay(HOLD_MS)
  // Fencing: the outdated primary must not accept writes when the partition ends, so it is killed. When it starts
  // again, it copies the data of the new primary.
  await cluster.kill(`postgres-${primary}`)
}

/**
 * Restarts groups of containers one after the other. Before the next group is restarted, the cluster must have all its
 * members again.
 */
export async function restartInTurn(
  cluster: Cluster,
  groups: readonly (readonly string[])[],
): Promise<void> {
  for (const names of groups) {
    await cluster.stop(...names)
    await cluster.start(...names)
    await cluster.untilBackendsComplete()
    await cluster.untilServicesReady()
  }
}
