import { randomBytes } from 'node:crypto'
import { Secret } from '@integration-host/shared/secrets/secret'
import { freePorts } from '@integration-host/shared/test-support/free-ports'
import { expect, until } from '../compose/check.ts'
import { type Output, runDocker } from '../compose/docker.ts'
import type { Installation } from './client.ts'

export type Machine = 1 | 2 | 3
const machines: readonly Machine[] = [1, 2, 3]

/** The port of each service, on which `container-health.sh` queries its readiness. */
const services = {
  'demo-api': 7216,
  'token-service': 7217,
  'accounting-gateway': 7218,
  coordinator: 7219,
} as const
const serviceNames = Object.keys(services) as (keyof typeof services)[]

const portNames = [
  'DEMO_API_PORT',
  'TOKEN_SERVICE_PORT',
  'ACCOUNTING_GATEWAY_PORT',
  'COORDINATOR_PORT',
  'SANDBOX_PROVIDER_PORT',
] as const

const FILES = ['tests/cluster/compose.yaml', 'tests/cluster/first-release.yaml']

export type Release = 'first release' | 'today'

const ports = { redis: 6379, sentinel: 26379, rabbitmq: 5672, postgres: 5432 } as const
/**
 * In compose.yaml, the last octet of a server's IPv4 address is this number plus the number of the server's machine.
 */
const firstHost = { redis: 10, sentinel: 20, rabbitmq: 30, postgres: 40 } as const
type Server = keyof typeof firstHost
const servers = Object.keys(firstHost) as Server[]

/**
 * The containers of compose.yaml, with a project name, ports and a network of their own. An instance records which
 * faults it has caused, so that `repair` can end them.
 */
export class Cluster {
  readonly project = `integration-host-cluster-${process.pid}`
  readonly #env: Readonly<Record<string, string>>
  readonly #network: string
  readonly #signal: AbortSignal
  readonly #stopped = new Set<string>()
  readonly #paused = new Set<string>()
  readonly #filtered = new Set<string>()

  private constructor(published: readonly number[], signal: AbortSignal) {
    this.#signal = signal
    this.#network = `10.${200 + (process.pid % 50)}.${Math.floor(process.pid / 50) % 250}`
    this.#env = {
      COMPOSE_FILE: FILES[0] ?? '',
      NETWORK: this.#network,
      SERVICE_API_KEY: randomBytes(32).toString('hex'),
      CLIENT_SECRET: randomBytes(32).toString('hex'),
      CREDENTIAL_KEYS: `k1:${randomBytes(32).toString('base64')}`,
      REDIS_URL: `redis+sentinel://${this.#listed('sentinel')}/main`,
      AMQP_URL: `amqp://guest:guest@${this.#listed('rabbitmq')}`,
      DATABASE_URL: `postgresql://postgres@${this.#listed('postgres')}/integration?target_session_attrs=read-write`,
      ...Object.fromEntries(portNames.map((name, index) => [name, String(published[index])])),
    }
  }

  /**
   * Creates a cluster on free ports. Aborting `signal` aborts every command of this cluster except `logs` and `remove`.
   */
  static async create(signal: AbortSignal): Promise<Cluster> {
    return new Cluster(await freePorts(portNames.length), signal)
  }

  get installation(): Installation {
    const at = (name: (typeof portNames)[number]) => `http://127.0.0.1:${this.#env[name]}`
    return {
      demoApi: at('DEMO_API_PORT'),
      tokenService: at('TOKEN_SERVICE_PORT'),
      accountingGateway: at('ACCOUNTING_GATEWAY_PORT'),
      coordinator: at('COORDINATOR_PORT'),
      sandboxProvider: at('SANDBOX_PROVIDER_PORT'),
      serviceKey: new Secret(this.#env['SERVICE_API_KEY'] ?? ''),
    }
  }

  /** Returns whether a Docker engine and Compose respond. */
  async isEngineAvailable(): Promise<boolean> {
    const outputs = [await this.#run(['version']), await this.#run(['compose', 'version'])]
    return outputs.every(({ code }) => code === 0)
  }

  async build(): Promise<void> {
    await this.compose('build', '--quiet', 'token-service-1', 'packet-filter')
  }

  /**
   * Starts all servers of the backends, waits until they have formed their clusters, and then starts the services. If
   * the coordinator started earlier, it would declare its queues without members on the RabbitMQ nodes that have not
   * joined yet.
   */
  async up(release: Release = 'today'): Promise<void> {
    const outside = ['packet-filter', 'ingress', 'sandbox-provider']
    const backends = machines.flatMap((n) => servers.map((server) => `${server}-${n}`))
    await this.compose('up', '--detach', '--no-build', ...backends, ...outside)
    await this.untilBackendsComplete()
    const files = release === 'today' ? [] : FILES.flatMap((file) => ['--file', file])
    await this.compose(...files, 'up', '--detach', '--no-build')
    await this.untilServicesReady()
  }

  /** Replaces containers of the first release with containers of the current image. */
  async upgrade(...names: readonly string[]): Promise<void> {
    await this.compose('up', '--detach', '--no-build', '--no-deps', ...names)
  }

  /**
   * Removes the containers, networks and volumes. Also works after the signal was aborted. The removal is repeated
   * until nothing remains, because a Ctrl-C ends the `docker` command while the engine may still be creating a
   * container.
   *
   * @throws {Error} if something could not be removed
   */
  async remove(): Promise<void> {
    const down = ['--profile', 'ahead', 'down', '--volumes', '--remove-orphans', '--timeout', '1']
    const list = [
      'ps',
      '--all',
      '--quiet',
      '--filter',
      `label=com.docker.compose.project=${this.project}`,
    ]
    const run = (args: readonly string[]) =>
      runDocker(args, this.#env, AbortSignal.timeout(120_000))
    const isRemoved = async (): Promise<boolean> => {
      const { code } = await run([...this.#base, ...down])
      return code === 0 && (await run(list)).text === ''
    }
    await until('the cluster is removed', isRemoved, 120)
    for (const set of [this.#stopped, this.#paused, this.#filtered]) set.clear()
  }

  /** Returns the last log lines of every container. Also works after the signal was aborted. */
  async logs(lines: number): Promise<string> {
    const args = [...this.#base, 'logs', '--no-color', '--timestamps', '--tail', String(lines)]
    return (await runDocker(args, this.#env, AbortSignal.timeout(60_000))).text
  }

  /** Kills containers immediately, as a power failure does. Containers that are already stopped are skipped. */
  async kill(...names: readonly string[]): Promise<void> {
    const running = names.filter((name) => !this.#stopped.has(name))
    for (const name of running) {
      this.#stopped.add(name)
      this.#paused.delete(name) // `kill` also ends a container that is frozen
    }
    if (running.length > 0) await this.docker('kill', ...this.#containers(running))
  }

  /** Stops containers with SIGTERM, as an upgrade does. */
  async stop(...names: readonly string[]): Promise<void> {
    for (const name of names) this.#stopped.add(name)
    await this.docker('stop', ...this.#containers(names))
  }

  async start(...names: readonly string[]): Promise<void> {
    await this.docker('start', ...this.#containers(names))
    for (const name of names) this.#stopped.delete(name)
  }

  /** Replaces containers with new containers that have no data. */
  async replace(...names: readonly string[]): Promise<void> {
    const empty = ['--force-recreate', '--renew-anon-volumes']
    await this.compose('up', '--detach', '--no-build', '--no-deps', ...empty, ...names)
    for (const name of names) this.#stopped.delete(name)
  }

  /** Freezes the processes of containers. Their connections stay open and unresponsive. */
  async pause(...names: readonly string[]): Promise<void> {
    for (const name of names) this.#paused.add(name)
    await this.docker('pause', ...this.#containers(names))
  }

  /**
   * Drops all packets between a container and the addresses `peers`. With the direction `to`, drops only the packets to
   * the container. Without `peers`, drops the packets between the container and all other addresses.
   */
  async cut(name: string, peers?: readonly string[], direction: 'both' | 'to' = 'both') {
    const rules =
      peers === undefined
        ? ['INPUT ! -i lo', 'OUTPUT ! -o lo']
        : peers.flatMap((peer) => [
            `INPUT -s ${peer}`,
            ...(direction === 'both' ? [`OUTPUT -d ${peer}`] : []),
          ])
    this.#filtered.add(name)
    await this.#filter(name, rules.map((rule) => `iptables -A ${rule} -j DROP`).join(' && '))
  }

  /** Ends all network partitions that `cut` has caused. */
  async join(): Promise<void> {
    await Promise.all(
      [...this.#filtered]
        .filter((name) => !this.#stopped.has(name))
        .map((name) => this.#filter(name, 'iptables -F')),
    )
    this.#filtered.clear()
  }

  /**
   * Ends all faults, and waits until all servers of every backend and all replicas of every service are available.
   */
  async repair(): Promise<void> {
    await this.join()
    if (this.#paused.size > 0) await this.docker('unpause', ...this.#containers(this.#paused))
    this.#paused.clear()
    if (this.#stopped.size > 0) await this.start(...this.#stopped)
    await this.untilBackendsComplete()
    await this.untilServicesReady()
  }

  /** Returns the address of a server in the network of the cluster. */
  address(server: Server, machine: Machine): string {
    return `${this.#network}.${firstHost[server] + machine}`
  }

  others(machine: Machine): readonly Machine[] {
    return machines.filter((n) => n !== machine)
  }

  /** Returns the addresses of the servers of the same kind on the other machines. */
  peers(server: Server, machine: Machine): readonly string[] {
    return this.others(machine).map((n) => this.address(server, n))
  }

  /** Returns the addresses of the Redis servers on the other machines, and of all Sentinels. */
  redisPeers(machine: Machine): readonly string[] {
    return [...this.peers('redis', machine), ...machines.map((n) => this.address('sentinel', n))]
  }

  /** Returns the names of all containers of a machine. */
  containersOf(machine: Machine): readonly string[] {
    const names = [...servers, ...(machine === 3 ? [] : this.services)]
    return names.map((name) => `${name}-${machine}`)
  }

  readonly services: readonly string[] = serviceNames

  /** Returns the machine whose Redis server at least two Sentinels report as the primary; `null` if there is none. */
  async redisPrimary(): Promise<Machine | null> {
    const replies = await Promise.all(
      machines.map((n) =>
        this.exec(`sentinel-${n}`, 'redis-cli', '-p', '26379', 'SENTINEL', 'MASTER', 'main'),
      ),
    )
    const names = replies
      .filter(({ code }) => code === 0)
      .map(({ text }) => /^ip\n(\S+)$/m.exec(text)?.[1])
    const votes = (n: Machine) => names.filter((name) => name === this.address('redis', n)).length
    return machines.find((n) => votes(n) >= 2) ?? null
  }

  /** Returns the machine whose PostgreSQL server accepts writes; `null` if there is none or more than one. */
  async postgresPrimary(): Promise<Machine | null> {
    const replies = await Promise.all(
      machines.map((n) => this.query(n, 'SELECT pg_is_in_recovery()')),
    )
    const primaries = machines.filter((_, index) => replies[index] === 'f')
    return primaries.length === 1 ? (primaries[0] ?? null) : null
  }

  /** Runs a query on a PostgreSQL server; returns its output, or `null` if the query failed. */
  async query(machine: Machine, sql: string, seconds = 5): Promise<string | null> {
    const psql = [
      'timeout',
      String(seconds),
      'psql',
      '-U',
      'postgres',
      '-h',
      '127.0.0.1',
      '-Atc',
      sql,
    ]
    const { code, text } = await this.exec(`postgres-${machine}`, ...psql)
    return code === 0 ? text.trim() : null
  }

  untilBackendsComplete(): Promise<void> {
    return this.until('every backend is complete', () => this.#areBackendsComplete(), 120)
  }

  untilServicesReady(): Promise<void> {
    return this.until('every service is ready', () => this.#areServicesReady(), 90)
  }

  /**
   * Polls `check` until it returns true, as the function `until` does, or until the signal of this cluster is aborted.
   */
  until(what: string, check: () => Promise<boolean>, seconds: number): Promise<void> {
    return until(what, check, seconds, this.#signal)
  }

  async #areBackendsComplete(): Promise<boolean> {
    const redis = await this.redisPrimary()
    if (redis === null) return false
    const replication = await this.exec(`redis-${redis}`, 'redis-cli', 'INFO', 'replication')
    if (replication.text.match(/^slave\d:.*state=online/gm)?.length !== 2) return false
    const postgres = await this.postgresPrimary()
    if (postgres === null) return false
    const standbys = `SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'`
    if ((await this.query(postgres, standbys)) !== '2') return false
    // A RabbitMQ node does not listen before it has joined the cluster, or while it belongs to a minority.
    const listening = await Promise.all(
      machines.map((n) =>
        this.exec(`rabbitmq-${n}`, 'bash', '-c', 'exec 3<>/dev/tcp/127.0.0.1/5672'),
      ),
    )
    return listening.every(({ code }) => code === 0)
  }

  async #areServicesReady(): Promise<boolean> {
    const checks = serviceNames.flatMap((name) =>
      [1, 2].map((n) =>
        this.exec(`${name}-${n}`, 'scripts/container-health.sh', String(services[name])),
      ),
    )
    return (await Promise.all(checks)).every(({ code }) => code === 0)
  }

  /** Runs a command in a container. */
  exec(name: string, ...command: readonly string[]): Promise<Output> {
    return this.#run(['exec', this.#container(name), ...command])
  }

  /**
   * Runs a Docker command and returns its output.
   *
   * @throws {Error} with the output unless the exit code is 0
   */
  async docker(...args: readonly string[]): Promise<string> {
    const { code, text } = await this.#run(args)
    expect(code === 0, `docker ${args.join(' ')} (exit code ${code})\n${text}`)
    return text
  }

  compose(...args: readonly string[]): Promise<string> {
    return this.docker(...this.#base, ...args)
  }

  async #filter(name: string, commands: string): Promise<void> {
    const pid = await this.docker('inspect', '--format', '{{.State.Pid}}', this.#container(name))
    const enter = ['nsenter', '--target', pid.trim(), '--net', 'sh', '-c', commands]
    await this.docker('exec', this.#container('packet-filter'), ...enter)
  }

  #run(args: readonly string[]): Promise<Output> {
    return runDocker(args, this.#env, this.#signal)
  }

  get #base(): readonly string[] {
    return ['compose', '--env-file', '/dev/null', '--project-name', this.project]
  }

  /** Returns the addresses of the servers of one kind on all machines, as a comma-separated list for a URL. */
  #listed(server: Server): string {
    return machines.map((n) => `${this.address(server, n)}:${ports[server]}`).join(',')
  }

  #container(name: string): string {
    return `${this.project}-${name}-1`
  }

  #containers(names: Iterable<string>): readonly string[] {
    return [...names].map((name) => this.#container(name))
  }
}
