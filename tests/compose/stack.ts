import { freePorts } from '@integration-host/shared/test-support/free-ports'
import type { Installation } from '../../host/src/story.ts'
import { type Environment, type Output, runDocker } from './docker.ts'

/** The variables of .env.example that select the published ports. */
const portNames = [
  'DEMO_API_PORT',
  'TOKEN_SERVICE_PORT',
  'ACCOUNTING_GATEWAY_PORT',
  'COORDINATOR_PORT',
  'SANDBOX_PROVIDER_PORT',
  'CONSOLE_PORT',
  'WEBHOOK_RECEIVER_PORT',
  'RABBITMQ_CONSOLE_PORT',
] as const
type PortName = (typeof portNames)[number]

/** Services that run once and exit. */
export const ONE_SHOTS: readonly string[] = ['init', 'real-provider']

/** Splits a command line into words at its whitespace. Quotes are not supported. */
export const words = (text: string): string[] => text.trim().split(/\s+/)

/** The members of the output of `docker inspect` that the checks read. */
export interface Container {
  readonly Name: string
  readonly Config: { readonly User: string; readonly Labels: Readonly<Record<string, string>> }
  readonly HostConfig: {
    readonly CapAdd: readonly string[] | null
    readonly CapDrop: readonly string[] | null
    readonly Memory: number
    readonly NanoCpus: number
    readonly PidsLimit: number | null
    /** The published ports by the port of the container. */
    readonly PortBindings: Readonly<Record<string, readonly { readonly HostIp: string }[]>> | null
    readonly ReadonlyRootfs: boolean
    readonly SecurityOpt: readonly string[] | null
  }
}

/**
 * A compose stack with a project name and ports of its own, so that it does not disturb another stack. It does not read
 * `.env`, because the test passes all settings.
 */
export class Stack {
  readonly project = `integration-host-test-${process.pid}`
  readonly ports: Readonly<Record<PortName, number>>
  /** Name of a container that a test starts outside the stack. `remove` deletes this container as well. */
  readonly outsider = `${this.project}-outsider`
  readonly #signal: AbortSignal

  private constructor(ports: Readonly<Record<PortName, number>>, signal: AbortSignal) {
    this.ports = ports
    this.#signal = signal
  }

  /** Creates a stack on free ports. Aborting `signal` aborts every command of this stack except `logs` and `remove`. */
  static async create(signal: AbortSignal): Promise<Stack> {
    const ports = await freePorts(portNames.length)
    const byName = Object.fromEntries(portNames.map((name, index) => [name, ports[index]]))
    return new Stack(byName as Record<PortName, number>, signal)
  }

  at(name: PortName): string {
    return `http://127.0.0.1:${this.ports[name]}`
  }

  /** Returns what `tellStory` needs: the addresses of the services and the applications' key. */
  async installation(): Promise<Installation> {
    return {
      tokenService: this.at('TOKEN_SERVICE_PORT'),
      accountingGateway: this.at('ACCOUNTING_GATEWAY_PORT'),
      coordinator: this.at('COORDINATOR_PORT'),
      demoApi: this.at('DEMO_API_PORT'),
      serviceKey: await this.heldKey('application'),
    }
  }

  /**
   * Runs a Docker Compose command and returns its output.
   *
   * @throws {Error} with the whole output unless the exit code is 0
   */
  async compose(args: readonly string[], env: Environment = {}): Promise<string> {
    const { code, text } = await this.tryCompose(args, env)
    if (code !== 0) throw new Error(`docker compose ${args.join(' ')} (exit code ${code})\n${text}`)
    return text
  }

  tryCompose(args: readonly string[], env: Environment = {}): Promise<Output> {
    return this.#run([...this.#base, ...args], env, this.#signal)
  }

  /** Returns whether a Docker engine and Compose respond. */
  async isEngineAvailable(): Promise<boolean> {
    const outputs = [await this.docker(['version']), await this.docker(['compose', 'version'])]
    return outputs.every(({ code }) => code === 0)
  }

  docker(args: readonly string[]): Promise<Output> {
    return this.#run(args, {}, this.#signal)
  }

  /**
   * Returns the last log lines of every container. Also works after the signal was aborted, so that the logs of a
   * failed run can be printed.
   */
  async logs(): Promise<string> {
    const args = [...this.#base, 'logs', '--no-color', '--tail', '5']
    return (await this.#run(args, {}, AbortSignal.timeout(60_000))).text
  }

  /** Removes the stack's containers, networks, volumes and image. Also works after the signal was aborted. */
  async remove(): Promise<void> {
    await this.#run(['rm', '--force', this.outsider], {}, AbortSignal.timeout(30_000))
    const args = [...this.#base, '--profile', 'real', 'down', '--volumes', '--remove-orphans']
    await this.#run(args, {}, AbortSignal.timeout(120_000))
    const image = ['image', 'rm', '--force', `integration-host:${this.project}`]
    await this.#run(image, {}, AbortSignal.timeout(30_000))
  }

  get #base(): readonly string[] {
    return ['compose', '--env-file', '/dev/null', '--project-name', this.project]
  }

  #run(args: readonly string[], env: Environment, signal: AbortSignal): Promise<Output> {
    const ports = Object.fromEntries(portNames.map((name) => [name, String(this.ports[name])]))
    return runDocker(args, { COMPOSE_FILE: 'docker-compose.yml', ...ports, ...env }, signal)
  }

  /** Runs the `init` container with its own command or with another command. */
  init(...command: readonly string[]): Promise<Output> {
    return this.tryCompose([...words('run --rm --no-deps -T init'), ...command])
  }

  /** Reads a key that `init` created. Uses the command that docs/running.md shows for this. */
  async heldKey(holder: 'application' | 'operator'): Promise<string> {
    const args = `run --rm -T --entrypoint cat cli /secrets/${holder}_key`
    const text = await this.compose(words(args))
    return /ihk_[\w-]{43}/.exec(text)?.[0] ?? text
  }

  /** Returns the content of a file in a service's container, without the final line break. */
  async read(service: string, path: string): Promise<string> {
    return (await this.compose(['exec', '-T', service, 'cat', path])).trimEnd()
  }

  /**
   * Calls RabbitMQ's management API as the user `console`.
   *
   * @throws {Error} unless the response is 2xx
   */
  async management(
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    path: string,
    body?: object,
  ): Promise<unknown> {
    const password = await this.read('rabbitmq', '/secrets/rabbitmq/console_password')
    const response = await fetch(`${this.at('RABBITMQ_CONSOLE_PORT')}/api/${path}`, {
      method,
      headers: {
        Authorization: `Basic ${Buffer.from(`console:${password}`).toString('base64')}`,
        'Content-Type': 'application/json',
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    if (!response.ok)
      throw new Error(`the management API responds with ${response.status} to ${path}`)
    const text = await response.text()
    return text === '' ? null : (JSON.parse(text) as unknown)
  }

  /** Returns the container ids of the given services, or of all services. */
  async containers(...services: readonly string[]): Promise<readonly string[]> {
    return (await this.compose(['ps', '--all', '--quiet', ...services])).split('\n').filter(Boolean)
  }

  async inspect(): Promise<{ readonly text: string; readonly containers: readonly Container[] }> {
    const { text } = await this.docker(['inspect', ...(await this.containers())])
    return { text, containers: JSON.parse(text) as readonly Container[] }
  }
}
