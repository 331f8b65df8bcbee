/** Servers of a test's own that can be killed and started again, with what they have on their disk. */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chown, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { freePort, freePorts } from '@integration-host/shared/test-support/free-ports'
import type { BackendKind } from '../../support/backend.ts'
import { untilAnswering } from '../../support/probes.ts'
import { serverFolders } from '../../support/server-binaries.ts'
import { type Server, type ServerCommand, ServerGroup } from '../../support/server-group.ts'

const run = promisify(execFile)

export interface MortalServer extends AsyncDisposable {
  readonly url: string
  /** Ends it in the middle of whatever it does. */
  kill(): Promise<void>
  /** Starts it again. Resolves when it answers. */
  revive(): Promise<void>
}

export interface MortalRabbitMq extends MortalServer {
  /** Raises or ends its memory alarm: meanwhile it reads nothing more of whoever publishes. */
  setAlarm(isOn: boolean): Promise<void>
  /** Runs `rabbitmqctl` for this broker. Resolves with its standard output. */
  control(...args: readonly string[]): Promise<string>
}

interface Prepared {
  readonly url: string
  readonly command: ServerCommand
  /** Where the server itself writes its process id: the one started may be a shell around it. */
  readonly pidFile: string
}

/** @throws {Error} when PostgreSQL is not installed or does not start. */
export async function startMortalPostgres(): Promise<MortalServer> {
  return (await startMortal('postgres', postgres)).server
}

/** @throws {Error} when RabbitMQ is not installed or does not start. */
export async function startMortalRabbitMq(): Promise<MortalRabbitMq> {
  const { server, programs, command } = await startMortal('rabbitmq', rabbitmq)
  const control = async (...args: readonly string[]): Promise<string> =>
    (await run(join(programs, 'rabbitmqctl'), args, { env: command.env })).stdout
  return {
    ...server,
    control,
    async setAlarm(isOn) {
      await control('set_vm_memory_high_watermark', isOn ? '0' : '0.9')
    },
  }
}

async function startMortal(
  kind: BackendKind,
  prepare: (programs: string, group: ServerGroup) => Promise<Prepared>,
): Promise<{ server: MortalServer; programs: string; command: ServerCommand }> {
  const programs = (await serverFolders([kind])).get(kind) ?? ''
  const group = new ServerGroup()
  try {
    const { url, command, pidFile } = await prepare(programs, group)
    let running: Server
    const revive = async (): Promise<void> => {
      running = group.start(command)
      await untilAnswering(kind, url, {
        deadlineMs: 60_000,
        whileRunning: () => running.assertRunning(),
      })
    }
    await revive()
    const server: MortalServer = {
      url,
      revive,
      async kill() {
        const [pid] = (await readFile(pidFile, 'utf8')).split('\n')
        // PostgreSQL's way to stop at once without a checkpoint; the others are simply ended.
        process.kill(Number(pid), kind === 'postgres' ? 'SIGQUIT' : 'SIGKILL')
        for (;;) {
          const isGone = await running.assertRunning().then(
            () => false,
            () => true,
          )
          if (isGone) return
          await delay(20)
        }
      },
      [Symbol.asyncDispose]: () => group.stop(),
    }
    return { server, programs, command }
  } catch (error) {
    await group.stop()
    throw error
  }
}

async function postgres(programs: string, { folder }: ServerGroup): Promise<Prepared> {
  const data = join(folder, 'data')
  await mkdir(data, { mode: 0o700 })
  const password = randomBytes(16).toString('hex')
  const passwordFile = join(folder, 'password')
  await writeFile(passwordFile, password)
  const user = await serverAccount()
  if (user !== undefined)
    for (const path of [data, passwordFile]) await chown(path, user.uid, user.gid)
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
    // A process that is killed loses nothing it gave to the system; only a power cut would.
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
}

async function rabbitmq(programs: string, group: ServerGroup): Promise<Prepared> {
  const { folder } = group
  const password = randomBytes(16).toString('hex')
  const [port, distributionPort, epmdPort] = await freePorts(3)
  const file = async (name: string, content: string): Promise<string> => {
    const path = join(folder, name)
    await writeFile(path, content, { mode: 0o600 })
    return path
  }
  const pidFile = join(folder, 'pid')
  const config = `default_user = tests\ndefault_pass = ${password}\nlog.console = true\n`
  const env = {
    ...process.env,
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
    RABBITMQ_CONF_ENV_FILE: await file('rabbitmq-env.conf', ''),
    RABBITMQ_CONFIG_FILE: await file('rabbitmq.conf', config),
    RABBITMQ_ADVANCED_CONFIG_FILE: await file('advanced.config', '[].\n'),
    RABBITMQ_ENABLED_PLUGINS_FILE: await file('enabled_plugins', '[].\n'),
  }
  const stopSignal = 'TERM'
  // Erlang's port mapper, which outlives the broker.
  group.start({ program: 'epmd', args: [], env, logFile: join(folder, 'epmd.log'), stopSignal })
  return {
    url: `amqp://tests:${password}@127.0.0.1:${port}`,
    pidFile,
    command: {
      program: join(programs, 'rabbitmq-server'),
      args: [],
      env,
      logFile: join(folder, 'log'),
      stopSignal,
    },
  }
}

/** PostgreSQL refuses to run as root; the account `postgres` runs it then. */
async function serverAccount(): Promise<ServerCommand['user']> {
  if (process.getuid?.() !== 0) return undefined
  const id = async (what: '-u' | '-g') => Number((await run('id', [what, 'postgres'])).stdout)
  return { uid: await id('-u'), gid: await id('-g') }
}
