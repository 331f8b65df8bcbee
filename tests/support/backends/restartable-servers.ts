/**
 * Servers that belong to a single test. The test can kill such a server and start it again with the data on its
 * disk.
 */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { BackendKind } from './backend.ts'
import { serverFolders } from './server-binaries.ts'
import {
  type RabbitMqConfig,
  type ServerSetup,
  setUpServer,
  startServer,
} from './server-commands.ts'
import { ServerGroup } from './server-group.ts'

const run = promisify(execFile)

export interface RestartableServer extends AsyncDisposable {
  readonly url: string
  /** Kills the server immediately, without a shutdown. */
  kill(): Promise<void>
  /** Starts the killed server again. Resolves when the server responds. */
  restart(): Promise<void>
}

export interface RestartableRabbitMq extends RestartableServer {
  /** Raises or clears the memory alarm. During the alarm, the broker reads nothing from publishers. */
  setAlarm(isOn: boolean): Promise<void>
  /** Runs `rabbitmqctl` for this broker. Resolves with its standard output. */
  control(...args: readonly string[]): Promise<string>
}

/**
 * Starts a server.
 *
 * @throws {Error} if the server is not installed or does not start
 */
export async function startRestartableServer(
  kind: 'postgres' | 'redis',
): Promise<RestartableServer> {
  return (await start(kind)).server
}

/**
 * Starts a RabbitMQ server.
 *
 * @throws {Error} if RabbitMQ is not installed or does not start
 */
export async function startRestartableRabbitMq(
  config?: RabbitMqConfig,
): Promise<RestartableRabbitMq> {
  const { server, programs, setup } = await start('rabbitmq', config)
  const control = async (...args: readonly string[]): Promise<string> =>
    (await run(join(programs, 'rabbitmqctl'), args, { env: setup.command.env })).stdout
  return {
    ...server,
    control,
    async setAlarm(isOn) {
      await control('set_vm_memory_high_watermark', isOn ? '0' : '0.9')
    },
  }
}

async function start(
  kind: BackendKind,
  config?: RabbitMqConfig,
): Promise<{ server: RestartableServer; programs: string; setup: ServerSetup }> {
  const programs = (await serverFolders([kind])).get(kind) ?? ''
  const group = new ServerGroup()
  try {
    const setup = await setUpServer(kind, programs, group, config)
    let running = await startServer(kind, setup, group)
    const server: RestartableServer = {
      url: setup.url,
      async restart() {
        running = await startServer(kind, setup, group)
      },
      async kill() {
        if (setup.pidFile === undefined) return running.kill()
        const [pid] = (await readFile(setup.pidFile, 'utf8')).split('\n')
        const ended = running.ended
        // On SIGQUIT all processes of PostgreSQL exit immediately and without a checkpoint, as in a crash.
        process.kill(Number(pid), kind === 'postgres' ? 'SIGQUIT' : 'SIGKILL')
        await ended
      },
      [Symbol.asyncDispose]: () => group.stop(),
    }
    return { server, programs, setup }
  } catch (error) {
    await group.stop()
    throw error
  }
}
