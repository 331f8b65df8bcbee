import { startPrimary, startStandby } from '@integration-host/tests/postgres-nodes'
import { type System, startSystem } from '@integration-host/tests/system'

/** A system whose database has either no standby or one standby that confirms each commit. */
export interface ReplicatedSystem extends AsyncDisposable {
  readonly system: System
  readonly hasStandby: boolean
}

// This server runs with fsync, because a measured commit must reach the disk. The servers of the tests run without
// fsync.
const settings = { fsync: 'on', synchronous_commit: 'on' }

/**
 * Starts a PostgreSQL server on this machine, with a synchronous standby if requested, and a system that uses the
 * server.
 */
export async function startReplicatedSystem(hasStandby: boolean): Promise<ReplicatedSystem> {
  await using opened = new AsyncDisposableStack()
  const primary = opened.use(await startPrimary({ settings }))
  if (hasStandby) {
    opened.use(await startStandby(primary, 'standby'))
    await primary.sql`alter system set synchronous_standby_names = 'FIRST 1 (standby)'`
    await primary.sql`select pg_reload_conf()`
    for (let isSynchronous = false; !isSynchronous;) {
      const rows = await primary.sql`select from pg_stat_replication where sync_state = 'sync'`
      isSynchronous = rows.length > 0
    }
  }
  const system = opened.use(await startSystem([], { databaseServer: primary.url }))
  const owned = opened.move()
  return { system, hasStandby, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}
