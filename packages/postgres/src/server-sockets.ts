/**
 * The connections of one OS process to the PostgreSQL servers of one URL.
 *
 * - I1: There are never more than `limit` open sockets. Otherwise a database that accepts connections and then hangs
 *   would get one more connection with each timeout.
 * - I2: A socket is not closed while the server may still be executing a statement for it. The server would not notice
 *   the close, and its process would keep running. Such a socket stays open until the server responds, or until its
 *   server process is known to have ended.
 * - I3: A statement is never cancelled. If a commit waits for a synchronous standby and is cancelled, PostgreSQL
 *   commits the transaction without waiting for the standby.
 */
import type { Socket } from 'node:net'
import { tlsFailure } from '@integration-host/shared/tls/tls-failure'
import { tlsFiles } from '@integration-host/shared/tls/tls-files'
import type { PostgresAddress, TlsPaths } from './address.ts'
import {
  NoUsableServer,
  type OpenedSession,
  type OpenSession,
  ServerSocket,
} from './server-socket.ts'
import { NotWritable, SessionRejected, startSession } from './startup.ts'
import {
  addressesOf,
  type Choice,
  choices,
  type Encryption,
  openTransport,
  type ServerAddress,
  TlsNotOffered,
} from './transport.ts'

export interface ServerSocketsOptions {
  /** The paths in `DATABASE_CA_FILE` and the other TLS settings. The parameters of the URL take precedence. */
  readonly tls?: TlsPaths
  /** PostgreSQL settings for each session. Settings in the URL take precedence. */
  readonly session?: Readonly<Record<string, string>>
  readonly limit: number
  /**
   * Called when a session was opened through a connection pooler. `isShared` is true if another open session has the
   * same server process. If so, the pooler assigns a server process to a session for one transaction only.
   */
  readonly onPooled?: (isShared: boolean) => void
}

/** A row of `pg_stat_activity`. */
export interface Activity {
  readonly pid: number
  readonly startedAt: string | null
  readonly state: string | null
  readonly waitType: string | null
  readonly waitEvent: string | null
}

/**
 * What happens to an unresponsive connection. `keep`: the connection stays open until {@link ServerSockets.review}
 * closes it. `release`: the driver gets another connection immediately.
 */
export type Unresponsive = 'keep' | 'release'

export interface ServerSockets {
  /** Returns a socket for the driver `postgres`. */
  readonly create: (unresponsive: Unresponsive) => ServerSocket
  readonly hasOverdue: () => boolean
  /**
   * Closes the connections whose server process no longer exists. Also closes each connection whose statement has
   * exceeded the driver's timeout ({@link ServerSocket.isOverdue}), unless the server is still executing the statement.
   * Returns whether commits wait for a synchronous standby.
   *
   * @param queriedAt the time of `performance.now()` before `activities` was queried.
   */
  readonly review: (activities: readonly Activity[], queriedAt: number) => boolean
  readonly closeAll: () => void
}

export function createServerSockets(
  address: PostgresAddress,
  { tls = {}, session = {}, limit, onPooled = () => {} }: ServerSocketsOptions,
): ServerSockets {
  const encryption = encryptionOf(address, tls)
  const settings = { ...session, ...address.session }
  const created = new Set<ServerSocket>()
  /** All open sockets, including those that the driver no longer uses (I2). */
  const sockets = new Set<Socket>()
  const released = new Set<Socket>()
  let opening = 0
  /**
   * The address that was used last. It is tried first, because each attempt to connect to a dead address costs a
   * timeout.
   */
  let last: ServerAddress | undefined

  const track = (socket: Socket): void => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  }
  const release = (socket: Socket): void => {
    released.add(socket)
    socket.once('close', () => released.delete(socket))
    // The driver has given up a released connection, but its last statement may still run. The data that arrives is the
    // response to this statement, so the connection can be closed then.
    socket.on('data', () => socket.destroy())
  }

  const openSession: OpenSession = async (startupMessage, driver) => {
    const failures: unknown[] = []
    const servers = last === undefined ? address.servers : withFirst(address.servers, last.server)
    for (const server of servers) {
      const attempts: unknown[] = []
      try {
        const found = await addressesOf(server)
        const preferred = found.find(({ ip }) => ip === last?.ip)
        for (const one of preferred === undefined ? found : withFirst(found, preferred)) {
          const opened = await attemptAll(one, attempts)
          if (opened !== null) return opened
        }
      } catch (error) {
        attempts.push(error)
      }
      failures.push(attempts.find(isOfServer) ?? attempts.at(-1))
      driver.signal.throwIfAborted()
    }
    throw failures.length === 1 ? failures[0] : new NoUsableServer(failures)

    async function attemptAll(
      target: ServerAddress,
      attempts: unknown[],
    ): Promise<OpenedSession | null> {
      for (const choice of choices[encryption.mode]) {
        if (choice === undefined) break
        driver.signal.throwIfAborted()
        try {
          return await attempt(target, choice)
        } catch (error) {
          attempts.push(isTimeout(error) ? timedOut() : error)
          if (!allowsOther(encryption.mode, error)) break
        }
      }
      return null
    }

    async function attempt(target: ServerAddress, choice: Choice): Promise<OpenedSession> {
      const open = [...sockets].filter(({ destroyed }) => !destroyed).length
      if (open + opening >= limit) throw timedOut()
      const signal = AbortSignal.any([driver.signal, AbortSignal.timeout(address.connectTimeoutMs)])
      opening += 1
      const socket = await openTransport(target, choice, encryption, signal).finally(() => {
        opening -= 1
      })
      track(socket)
      const startup = startSession(socket, startupMessage, {
        needsWrites: address.needsWrites,
        settings,
        forward: driver.forward,
        signal,
      })
      driver.onAttempt(startup.reply)
      try {
        const opened = { socket, session: await startup.session }
        last = target
        // The server responds again, so the processes of the released connections have ended or will end soon.
        for (const each of released) each.destroy()
        noticePooler(opened)
        return opened
      } catch (error) {
        if (startup.isAuthenticated && isTimeout(error)) release(socket)
        else socket.destroy()
        throw error
      } finally {
        driver.onAttempt(() => {})
      }
    }
  }

  function noticePooler({ session: { backend, isPooled } }: OpenedSession): void {
    if (isPooled) onPooled([...created].some((each) => each.backend?.pid === backend.pid))
  }

  return {
    create(unresponsive) {
      const socket = new ServerSocket(openSession, (each) => {
        if (unresponsive === 'keep') return
        const raw = each.release()
        if (raw !== null) release(raw)
      })
      created.add(socket)
      socket.once('close', () => created.delete(socket))
      return socket
    },
    hasOverdue: () => [...created].some((each) => each.isOverdue),
    review(activities, queriedAt) {
      const byPid = new Map(activities.map((each) => [each.pid, each]))
      const isWaiting = activities.some(waitsForStandby)
      let isBlocked = false
      for (const each of created) {
        const { backend, isOverdue, isPooled } = each
        if (backend === null || each.openedAt > queriedAt) continue
        const found = byPid.get(backend.pid)
        const activity =
          found?.startedAt === null || found?.startedAt === backend.startedAt ? found : undefined
        // A connection pooler may execute the statement in another server process than the one in which the session
        // started.
        const isExecuting = isPooled
          ? isWaiting || isActive(activity)
          : activity !== undefined && isActive(activity)
        if (isOverdue && !isExecuting) each.close()
        else if (isOverdue)
          isBlocked ||= isPooled ? isWaiting : activity !== undefined && waitsForStandby(activity)
        else if (!isPooled && activity === undefined) each.close()
      }
      return isBlocked
    },
    closeAll() {
      for (const each of created) each.close()
      for (const each of sockets) each.destroy()
    },
  }
}

/**
 * Returns whether a server process is executing a statement. A process that waits for its client counts as idle: the
 * connection to the client is lost, so the client cannot respond.
 */
const isActive = (activity: Activity | undefined): boolean =>
  activity?.state === 'active' && activity.waitType !== 'Client'
const waitsForStandby = ({ waitEvent }: Activity): boolean => waitEvent === 'SyncRep'

const timedOut = (): Error =>
  Object.assign(new Error('the server does not respond'), { code: 'CONNECT_TIMEOUT' })
const isTimeout = (error: unknown): boolean =>
  error instanceof DOMException && error.name === 'TimeoutError'

/** Returns whether a failure concerns the whole server, and not only one of its IP addresses. */
const isOfServer = (error: unknown): boolean =>
  error instanceof SessionRejected ||
  error instanceof NotWritable ||
  error instanceof TlsNotOffered ||
  tlsFailure(error) !== null

/** Returns whether libpq would try its second choice of encryption after this failure (see `choices`). */
const allowsOther = (mode: Encryption['mode'], error: unknown): boolean =>
  mode === 'prefer'
    ? tlsFailure(error) !== null || error instanceof TlsNotOffered
    : error instanceof SessionRejected && error.code.startsWith('28')

const withFirst = <Item>(items: readonly Item[], first: Item): readonly Item[] => [
  first,
  ...items.filter((item) => item !== first),
]

/**
 * If `sslmode` is absent and any TLS file is configured, the connection is encrypted and fully verified. If no TLS file
 * is configured, the connection is not encrypted. libpq's own default would encrypt if the server offers TLS, but
 * verify nothing.
 */
function encryptionOf(address: PostgresAddress, settings: TlsPaths): Encryption {
  const { DATABASE_CA_FILE, DATABASE_CERT_FILE, DATABASE_KEY_FILE } = address.files
  const paths = {
    DATABASE_CA_FILE: address.usesSystemRoots
      ? undefined
      : (DATABASE_CA_FILE ?? settings.DATABASE_CA_FILE),
    DATABASE_CERT_FILE: DATABASE_CERT_FILE ?? settings.DATABASE_CERT_FILE,
    DATABASE_KEY_FILE: DATABASE_KEY_FILE ?? settings.DATABASE_KEY_FILE,
  }
  const files = tlsFiles('DATABASE', paths)
  const isConfigured = files !== undefined || address.usesSystemRoots
  return {
    mode: address.sslMode ?? (isConfigured ? 'verify-full' : 'disable'),
    read: () => files?.read() ?? {},
    hasRoots: paths.DATABASE_CA_FILE !== undefined || address.usesSystemRoots,
  }
}
