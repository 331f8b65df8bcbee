/** Configures and starts each server on a free loopback port, with all its files in one folder. */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chown, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { freePort, freePorts } from '@integration-host/shared/test-support/free-ports'
import type { BackendKind } from './backend.ts'
import { untilReachable } from './probes.ts'
import type { Server, ServerCommand, ServerGroup } from './server-group.ts'

const run = promisify(execFile)

// RabbitMQ starts within a few seconds on two idle cores. On a busy machine the start takes many times longer.
const START_DEADLINE_MS = 90_000

export interface ServerSetup {
  readonly url: string
  readonly command: ServerCommand
  /** Another program that must run for as long as the server runs. */
  readonly companion?: ServerCommand
  /** The file into which the server writes its process id; absent if the started process is the server itself. */
  readonly pidFile?: string
}

/** Additions to the configuration of a RabbitMQ server. */
export interface RabbitMqConfig {
  readonly lines: readonly string[]
  readonly plugins: readonly string[]
}

interface ServerFiles {
  /** A folder for this server only, empty at first. */
  readonly folder: string
  /** The folder of the server's programs. */
  readonly programs: string
  /** The random password of the server. Without the password, no other user of the machine can connect. */
  readonly password: string
  readonly rabbitMq: RabbitMqConfig
}

/**
 * Creates a folder for a server in the group's folder and writes the server's configuration into it.
 *
 * @param programs the folder of the server's programs
 */
export async function setUpServer(
  kind: BackendKind,
  programs: string,
  group: ServerGroup,
  rabbitMq: RabbitMqConfig = { lines: [], plugins: [] },
): Promise<ServerSetup> {
  const folder = join(group.folder, kind)
  await mkdir(folder, { mode: 0o700 })
  const password = randomBytes(16).toString('hex')
  const setup = await setups[kind]({ folder, programs, password, rabbitMq })
  if (setup.companion !== undefined) group.start(setup.companion)
  return setup
}

/**
 * Starts a server that was set up. Resolves when the server responds.
 *
 * @throws {Error} with the end of the server's log if the server stops instead
 */
export async function startServer(
  kind: BackendKind,
  { url, command }: ServerSetup,
  group: ServerGroup,
): Promise<Server> {
  const server = group.start(command)
  await untilReachable(kind, url, {
    deadlineMs: START_DEADLINE_MS,
    whileRunning: () => server.assertRunning(),
  })
  return server
}

const setups: Record<BackendKind, (files: ServerFiles) => Promise<ServerSetup>> = {
  async postgres({ folder, programs, password }) {
    const user = await serverAccount()
    const data = join(folder, 'data')
    const passwordFile = join(folder, 'password')
    await writeFile(passwordFile, password)
    if (user !== undefined)
      for (const path of [folder, passwordFile]) await chown(path, user.uid, user.gid)
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
      // fsync is disabled. The tests only need data that survives the death of the process, for which a write without
      // fsync is sufficient.
      fsync: 'off',
    }
    return {
      url: `postgresql://postgres:${password}@127.0.0.1:${port}/postgres`,
      pidFile: join(data, 'postmaster.pid'),
      command: {
        program: join(programs, 'postgres'),
        args: [
          '-D',
          data,
          ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
        ],
        logFile: join(folder, 'log'),
        stopSignal: 'INT',
        user,
      },
    }
  },

  async redis({ folder, programs, password }) {
    const port = await freePort()
    const config = join(folder, 'redis.conf')
    // Every user of the machine can read the arguments of a process, so the password is passed in a file.
    const lines = [
      `port ${port}`,
      'bind 127.0.0.1',
      `requirepass ${password}`,
      `dir ${folder}`,
      'save ""',
      'appendonly yes',
      // The data must survive a kill of Redis, but not of the machine. With the default (everysec), Redis delays writes to
      // the file by up to two seconds while the disk is slow, and a kill then loses them.
      'appendfsync no',
    ]
    await writeFile(config, `${lines.join('\n')}\n`, { mode: 0o600 })
    return {
      url: `redis://:${password}@127.0.0.1:${port}`,
      command: {
        program: join(programs, 'redis-server'),
        args: [config],
        logFile: join(folder, 'log'),
        stopSignal: 'TERM',
      },
    }
  },

  async rabbitmq({ folder, programs, password, rabbitMq }) {
    const [port, distributionPort, epmdPort] = await freePorts(3)
    const file = async (name: string, content: string): Promise<string> => {
      const path = join(folder, name)
      await writeFile(path, content, { mode: 0o600 })
      return path
    }
    const pidFile = join(folder, 'pid')
    const config = [
      'default_user = tests',
      `default_pass = ${password}`,
      'log.console = true',
      ...rabbitMq.lines,
      '',
    ].join('\n')
    const env = {
      ...process.env,
      // This folder contains the Erlang cookie of the node. No other node uses this cookie.
      HOME: folder,
      ERL_EPMD_PORT: String(epmdPort),
      ERL_EPMD_ADDRESS: '127.0.0.1',
      RABBITMQ_PID_FILE: pidFile,
      RABBITMQ_NODENAME: `tests-${port}@localhost`,
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(distributionPort),
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-kernel inet_dist_use_interface {127,0,0,1}',
      RABBITMQ_MNESIA_BASE: join(folder, 'data'),
      RABBITMQ_LOG_BASE: join(folder, 'logs'),
      RABBITMQ_LOGS: '-',
      // Without these settings, the broker would read the configuration files of the RabbitMQ that is installed on the
      // machine.
      RABBITMQ_CONF_ENV_FILE: await file('rabbitmq-env.conf', ''),
      RABBITMQ_CONFIG_FILE: await file('rabbitmq.conf', config),
      RABBITMQ_ADVANCED_CONFIG_FILE: await file('advanced.config', '[].\n'),
      RABBITMQ_ENABLED_PLUGINS_FILE: await file(
        'enabled_plugins',
        `[${rabbitMq.plugins.join()}].\n`,
      ),
    }
    const stopSignal = 'TERM'
    return {
      url: `amqp://tests:${password}@127.0.0.1:${port}`,
      pidFile,
      // If no port mapper (epmd) runs, Erlang starts one as a daemon that outlives the broker. This epmd is stopped
      // together with the server group.
      companion: {
        program: 'epmd',
        args: [],
        env,
        logFile: join(folder, 'epmd.log'),
        stopSignal,
      },
      command: {
        program: join(programs, 'rabbitmq-server'),
        args: [],
        env,
        logFile: join(folder, 'log'),
        stopSignal,
      },
    }
  },
}

/**
 * The account that runs PostgreSQL and PgBouncer, which must not run as root. It is `postgres` if the tests run as
 * root, otherwise `undefined`.
 */
export async function serverAccount(): Promise<ServerCommand['user']> {
  if (process.getuid?.() !== 0) return undefined
  const id = async (option: '-u' | '-g'): Promise<number> => {
    try {
      return Number((await run('id', [option, 'postgres'])).stdout)
    } catch (error) {
      throw new Error('PostgreSQL must not run as root, and there is no account postgres', {
        cause: error,
      })
    }
  }
  return { uid: await id('-u'), gid: await id('-g') }
}
