import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { chown } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePort, freePorts } from '@integration-host/shared/test-support/free-ports'
import { labels, type Backend, type BackendKind, type StartedBackends } from './backend.ts'
import { reasonOf, untilAnswering } from './probes.ts'
import { serverFolders } from './server-binaries.ts'
import { ServerGroup, type Server, type ServerCommand } from './server-group.ts'

const run = promisify(execFile)

// RabbitMQ needs a few seconds on two idle cores, and the cores are seldom idle.
const startDeadlineMs = 90_000

/** What a launcher is given: an own folder, the server's programs, a password nobody else on the machine knows. */
interface Launch {
  readonly folder: string
  readonly programs: string
  readonly password: string
  readonly group: ServerGroup
}

interface Launched {
  readonly url: string
  readonly server: Server
}

/**
 * Starts servers of this test run's own on free loopback ports.
 *
 * @throws {Error} with a reason for each server that is not installed or did not start.
 */
export async function startPrivateServers(kinds: readonly BackendKind[]): Promise<StartedBackends> {
  const folders = await serverFolders(kinds)
  const password = randomBytes(16).toString('hex')
  const group = new ServerGroup()
  const started = await Promise.allSettled(
    kinds.map(async (kind): Promise<readonly [BackendKind, Backend]> => {
      const folder = join(group.folder, kind)
      mkdirSync(folder, { mode: 0o700 })
      const programs = folders.get(kind) ?? ''
      const { url, server } = await launchers[kind]({ folder, programs, password, group })
      await untilAnswering(kind, url, {
        deadlineMs: startDeadlineMs,
        whileRunning: () => server.assertRunning(),
      })
      return [kind, { url, origin: `started on ${new URL(url).host}` }]
    }),
  )
  const failures = started.flatMap((one, index) =>
    one.status === 'rejected'
      ? [`${labels[kinds[index] ?? 'redis']}: ${reasonOf(one.reason)}`]
      : [],
  )
  if (failures.length > 0) {
    await group.stop()
    throw new Error(failures.join('; '))
  }
  const backends = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  return { backends: Object.fromEntries(backends), stop: () => group.stop() }
}

const launchers: Record<BackendKind, (launch: Launch) => Promise<Launched>> = {
  async postgres({ folder, programs, password, group }) {
    const user = await ownerFor(folder)
    const data = join(folder, 'data')
    const passwordFile = join(folder, 'password')
    writeFileSync(passwordFile, password)
    if (user !== undefined) await chown(passwordFile, user.uid, user.gid)
    const port = await freePort()
    await run(
      join(programs, 'initdb'),
      [
        '--pgdata',
        data,
        '--username=postgres',
        `--pwfile=${passwordFile}`,
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        '--locale=C',
        '--no-sync',
      ],
      { cwd: '/', ...user },
    )
    const settings = {
      listen_addresses: '127.0.0.1',
      port: String(port),
      unix_socket_directories: '',
      max_connections: '300',
      // Nothing here outlives the machine, so nothing has to reach its disk.
      fsync: 'off',
    }
    const server = group.start({
      program: join(programs, 'postgres'),
      args: [
        '-D',
        data,
        ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
      ],
      logFile: join(folder, 'log'),
      stopSignal: 'INT',
      user,
    })
    return { url: `postgresql://postgres:${password}@127.0.0.1:${port}/postgres`, server }
  },

  async redis(launch) {
    const { url, command } = await redisCommand(launch)
    return { url, server: launch.group.start(command) }
  },

  async rabbitmq({ folder, programs, password, group }) {
    const [port, distributionPort, epmdPort] = await freePorts(3)
    const file = (name: string, content: string): string => {
      const path = join(folder, name)
      writeFileSync(path, content, { mode: 0o600 })
      return path
    }
    const config = ['default_user = tests', `default_pass = ${password}`, 'log.console = true']
    const env = {
      ...process.env,
      // Holds the Erlang cookie, which belongs to this node alone.
      HOME: folder,
      ERL_EPMD_PORT: String(epmdPort),
      ERL_EPMD_ADDRESS: '127.0.0.1',
      RABBITMQ_NODENAME: `tests-${port}@localhost`,
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(distributionPort),
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
      RABBITMQ_MNESIA_BASE: join(folder, 'data'),
      RABBITMQ_LOG_BASE: join(folder, 'logs'),
      RABBITMQ_LOGS: '-',
      // Whatever the machine's own broker is configured with stays out of this one.
      RABBITMQ_CONF_ENV_FILE: file('rabbitmq-env.conf', ''),
      RABBITMQ_CONFIG_FILE: file('rabbitmq.conf', `${config.join('\n')}\n`),
      RABBITMQ_ADVANCED_CONFIG_FILE: file('advanced.config', '[].\n'),
      RABBITMQ_ENABLED_PLUGINS_FILE: file('enabled_plugins', '[].\n'),
    }
    // Erlang starts its port mapper on demand as a daemon that nobody stops; one of our own is stopped with the rest.
    group.start({
      program: 'epmd',
      args: [],
      env,
      logFile: join(folder, 'epmd.log'),
      stopSignal: 'TERM',
    })
    const server = group.start({
      program: join(programs, 'rabbitmq-server'),
      args: [],
      env,
      logFile: join(folder, 'log'),
      stopSignal: 'TERM',
    })
    return { url: `amqp://tests:${password}@127.0.0.1:${port}`, server }
  },
}

async function redisCommand({
  folder,
  programs,
  password,
}: Launch): Promise<{ url: string; command: ServerCommand }> {
  const port = await freePort()
  const config = join(folder, 'redis.conf')
  // In a file, because arguments can be read by everybody on the machine.
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `requirepass ${password}`,
    `dir ${folder}`,
    'save ""',
    'appendonly yes',
  ]
  writeFileSync(config, `${lines.join('\n')}\n`, { mode: 0o600 })
  return {
    url: `redis://:${password}@127.0.0.1:${port}`,
    command: {
      program: join(programs, 'redis-server'),
      args: [config],
      logFile: join(folder, 'log'),
      stopSignal: 'TERM',
    },
  }
}

/** A Redis of a test's own that can be killed; what it has answered is in its append-only file. */
export interface MortalRedis extends AsyncDisposable {
  readonly url: string
  /** Ends it in the middle of whatever it does. */
  kill(): Promise<void>
  /** Starts it again, with what it has on disk. Resolves when it answers. */
  revive(): Promise<void>
}

/** @throws {Error} when Redis is not installed or does not start. */
export async function startMortalRedis(): Promise<MortalRedis> {
  const programs = (await serverFolders(['redis'])).get('redis') ?? ''
  const group = new ServerGroup()
  const password = randomBytes(16).toString('hex')
  const { url, command } = await redisCommand({ folder: group.folder, programs, password, group })
  let server = group.start(command)
  const untilUp = (): Promise<void> =>
    untilAnswering('redis', url, {
      deadlineMs: startDeadlineMs,
      whileRunning: () => server.assertRunning(),
    })
  const redis: MortalRedis = {
    url,
    kill: () => server.kill(),
    async revive() {
      server = group.start(command)
      await untilUp()
    },
    [Symbol.asyncDispose]: () => group.stop(),
  }
  try {
    await untilUp()
  } catch (error) {
    await group.stop()
    throw error
  }
  return redis
}

/** PostgreSQL refuses to run as root: its folder then belongs to the `postgres` account, which runs it. */
async function ownerFor(folder: string): Promise<ServerCommand['user']> {
  if (process.getuid?.() !== 0) return undefined
  const id = async (what: '-u' | '-g'): Promise<number> => {
    try {
      return Number((await run('id', [what, 'postgres'])).stdout)
    } catch (error) {
      throw new Error('it must not run as root, and there is no account postgres', { cause: error })
    }
  }
  const user = { uid: await id('-u'), gid: await id('-g') }
  await chown(folder, user.uid, user.gid)
  return user
}
