import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import type { Activity, ServerSockets } from './server-sockets.ts'

export interface MonitorDeps {
  /** Creates the database client with which the monitor observes the server. The client has one connection. */
  readonly connect: (events: {
    readonly onnotify: (channel: string) => void
    readonly onclose: () => void
  }) => postgres.Sql
  /**
   * All connections that this coordinator opens to the address of the monitored server, including the monitor's own
   * connection.
   */
  readonly sockets: ServerSockets
  /**
   * Whether the connections need a server that accepts writes. Such connections are closed when their server becomes a
   * standby.
   */
  readonly needsWrites: boolean
  /** Runs the slower checks of the server: on each new connection, and then every 15 s. */
  readonly inspect: (sql: postgres.Sql) => Promise<void>
  /** Called when commits have waited so long for a synchronous standby that they count as blocked. */
  readonly onBlocked: () => void
  readonly onFailure: (error: unknown) => void
  readonly signal: AbortSignal
}

/**
 * A connection on which the server is queried every second, and which receives the notifications. The query shows
 * whether the server responds, whether commits on other connections wait, and whether the server is still the primary.
 */
export interface Monitor {
  /** Whether commits wait for a synchronous standby that does not respond. */
  readonly isBlocked: boolean
  /**
   * Calls `onNotice` for each notification on a channel. Also calls it after each reconnect, because PostgreSQL does
   * not repeat notifications that were sent while the connection was down.
   */
  readonly listen: (channel: string, onNotice: () => void) => void
  readonly end: () => Promise<void>
}

const CHECK_MS = 1_000
const INSPECT_MS = 15_000

export function startMonitor(deps: MonitorDeps): Monitor {
  const { sockets, signal } = deps
  const channels = new Map<string, () => void>()
  /** The channels to which the current connection listens. */
  const listening = new Set<string>()
  let isNew = true
  let isBlocked = false
  let inspectAt = 0
  let wake = new AbortController()

  const sql = deps.connect({
    onnotify: (channel) => channels.get(channel)?.(),
    onclose() {
      isNew = true
      listening.clear()
      wake.abort()
    },
  })

  async function check(): Promise<void> {
    const wasNew = isNew
    isNew = false
    if (wasNew || sockets.hasOverdue()) {
      const queriedAt = performance.now()
      const waits = sockets.review(await readActivities(sql), queriedAt)
      if (waits && !isBlocked) deps.onBlocked()
      isBlocked = waits
    } else {
      const [server] = await sql<{ isStandby: boolean }[]>`
        select pg_is_in_recovery() as "isStandby"`
      // The server may be a standby now: a proxy or a pooler can connect existing connections to another server.
      if (server?.isStandby === true && deps.needsWrites) sockets.closeAll()
    }
    for (const [channel, onNotice] of channels) {
      if (listening.has(channel)) continue
      await sql`listen ${sql(channel)}`
      listening.add(channel)
      onNotice()
    }
    if (!wasNew && performance.now() < inspectAt) return
    inspectAt = performance.now() + INSPECT_MS
    await deps.inspect(sql)
  }

  async function keepChecking(): Promise<void> {
    while (!signal.aborted) {
      wake = new AbortController()
      try {
        await check()
      } catch (error) {
        isNew = true
        deps.onFailure(error)
      }
      await delay(CHECK_MS, null, { signal: AbortSignal.any([signal, wake.signal]) }).catch(
        () => {},
      )
    }
  }
  const checking = keepChecking()

  return {
    get isBlocked() {
      return isBlocked && sockets.hasOverdue()
    },
    listen(channel, onNotice) {
      channels.set(channel, onNotice)
      wake.abort()
    },
    async end() {
      await sql.end({ timeout: 2 })
      await checking
    },
  }
}

const readActivities = (sql: postgres.Sql): Promise<Activity[]> => sql<Activity[]>`
  select pid, extract(epoch from backend_start)::text as "startedAt", state,
    wait_event_type as "waitType", wait_event as "waitEvent"
  from pg_stat_activity where datname = current_database()`
