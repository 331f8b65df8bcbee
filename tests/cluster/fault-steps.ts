import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '@integration-host/shared/random'
import { expect, until } from '../compose/check.ts'
import type { Cluster, Machine } from './cluster.ts'

const FAILOVER_SECONDS = 60
/** When the primary of PostgreSQL is unavailable for so long, a standby is promoted. */
const PROMOTION_AFTER_MS = 3_000
const HOLD_MS = 5_000

/** Returns one of the entries, of which there must be at least one. */
export function oneOf<Entry>(entries: readonly Entry[], random: Random): Entry {
  const entry = entries[Math.floor(random() * entries.length)]
  if (entry === undefined) throw new RangeError('there is no entry to choose')
  return entry
}

export async function redisPrimary(cluster: Cluster): Promise<Machine> {
  const primary = await cluster.redisPrimary()
  expect(primary !== null, 'the Sentinels name no primary')
  return primary
}

/** Waits until Sentinel has promoted another Redis server. */
export function otherRedisPrimary(cluster: Cluster, lost: Machine): Promise<void> {
  return until(
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
  expect(primary !== null, 'there is not exactly one primary of PostgreSQL')
  return primary
}

/**
 * Promotes the standby that has received most. Every acknowledged commit is on one of the two standbys, and the other
 * one may be behind, and follows it from then on.
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
  // With a list of servers, a standby would wait for a dead one until TCP gives up: it ignores `connect_timeout`.
  const other = cluster.others(lost).find((machine) => machine !== best.machine)
  if (other === undefined) return
  const address = cluster.address('postgres', best.machine)
  const source = `host=${address} user=postgres application_name=postgres${other}`
  await cluster.query(other, `ALTER SYSTEM SET primary_conninfo = '${source}'`)
  await cluster.query(other, 'SELECT pg_reload_conf()')
}

/** Cuts the primary of PostgreSQL off from `peers`, or from everything, and promotes a standby. */
export async function cutPostgresPrimary(
  cluster: Cluster,
  peers?: readonly string[],
): Promise<void> {
  const primary = await postgresPrimary(cluster)
  await cluster.cut(`postgres-${primary}`, peers)
  await delay(PROMOTION_AFTER_MS)
  await promoteStandby(cluster, primary)
  await delay(HOLD_MS)
  // An outdated primary must not return as one (fencing): it is copied from the new one at its start.
  await cluster.kill(`postgres-${primary}`)
}

/** Stops and starts groups of containers one after the other; the next one when the cluster is complete again. */
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
