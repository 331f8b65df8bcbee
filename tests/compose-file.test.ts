import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

interface Service {
  readonly image: string
  readonly build?: string
  readonly profiles?: readonly string[]
  readonly ports?: readonly string[]
  readonly volumes?: readonly string[]
  readonly networks?: readonly string[]
  readonly read_only?: boolean
  readonly cap_drop?: readonly string[]
  readonly cap_add?: readonly string[]
  readonly security_opt?: readonly string[]
  readonly user?: string
  readonly mem_limit?: string
  readonly cpus?: number
  readonly pids_limit?: number
  readonly stop_grace_period?: string
  readonly healthcheck?: object
  readonly command?: readonly string[]
  readonly ulimits?: object
  readonly environment?: Readonly<Record<string, string>>
}
const root = join(import.meta.dirname, '..')
const composeFile = readFileSync(join(root, 'docker-compose.yml'), 'utf8')
const { services, volumes } = parse(composeFile, { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>
  readonly volumes: Readonly<Record<string, unknown>>
}
const all = Object.entries(services)
const haproxy = readFileSync(join(root, 'deploy/ingress/haproxy.cfg'), 'utf8')
/**
 * Returns the `listen` sections of the HAProxy configuration, each with its port and the servers to which it
 * forwards.
 */
const sections = haproxy
  .split(/^listen /m)
  .slice(1)
  .map((section) => ({
    name: /^\S+/.exec(section)?.[0] ?? '',
    bind: /^ {2}bind :(\d+)$/m.exec(section)?.[1],
    server: /^ {2}server-template replica \d+ (\S+)/m.exec(section)?.[1] ?? '',
  }))
const monitoring = all.filter(([, { profiles }]) => profiles?.includes('monitoring') === true)

const OWN_IMAGE = '${INTEGRATION_HOST_IMAGE:-integration-host:${COMPOSE_PROJECT_NAME}}'

describe('the compose file', () => {
  it('the image that the compose file builds has the name of the project, so that two clones build separate images', () => {
    const built = all.filter(([, { build }]) => build !== undefined).map(([, { image }]) => image)
    expect(built).toEqual([OWN_IMAGE])
  })

  it('every image of the stack has a digest in deploy/pinned-images.yml', () => {
    const override = parse(readFileSync(join(root, 'deploy/pinned-images.yml'), 'utf8')) as {
      readonly services: Readonly<
        Record<string, { image?: string; build?: { args: { NODE_IMAGE: string } } }>
      >
    }
    const pinned = override.services
    const DIGEST = /@sha256:[0-9a-f]{64}$/
    for (const [name, { image, profiles }] of all) {
      if (image === OWN_IMAGE || profiles?.includes('monitoring') === true) continue
      const [tag, digest] = (pinned[name]?.image ?? '').split(/(?=@)/)
      expect({ name, tag, digest }).toEqual({
        name,
        tag: image,
        digest: expect.stringMatching(DIGEST),
      })
    }
    expect(pinned['init']?.build?.args.NODE_IMAGE).toMatch(DIGEST)
  })

  it('the compose file publishes ports on the loopback interface only', () => {
    const ports = all.flatMap(([, service]) => service.ports ?? [])
    expect(ports.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([])
    expect(new Set(ports).size).toBe(ports.length)
  })

  it('the compose file publishes each ingress port once and takes the host port from a variable', () => {
    const { ports = [] } = services['ingress'] ?? {}
    const published = ports.map((port) => /^127\.0\.0\.1:\$\{[A-Z_]+:-(\d+)\}:\1$/.exec(port)?.[1])
    expect(published).toEqual(sections.map(({ bind }) => bind))
    const publishing = all.filter(([, service]) => service.ports !== undefined)
    expect(publishing.map(([name]) => name)).toEqual(['ingress', 'prometheus', 'grafana'])
  })

  it('.env.example explains exactly the variables that the compose file reads', () => {
    const variables = (text: string, pattern: RegExp) =>
      new Set([...text.matchAll(pattern)].map(([, name]) => name))
    const read = variables(composeFile, /\$\{([A-Z_]+)/g)
    const example = readFileSync(join(root, '.env.example'), 'utf8')
    expect(variables(example, /^(?:# )?([A-Z_]+)=/gm)).toEqual(
      new Set([...read, 'CLIENT_SECRET', 'WEBHOOK_VERIFIER_TOKENS', 'COMPOSE_PROFILES']),
    )
  })

  it('the forward proxy is passed to exactly the services and commands that call other parties', () => {
    const passed = all.filter(([, { environment }]) => environment?.['HTTPS_PROXY'] !== undefined)
    expect(passed.map(([name]) => name)).toEqual([
      'token-service',
      'accounting-gateway',
      'coordinator',
      'console',
      'doctor',
      'cli',
    ])
    for (const [name, { environment }] of passed)
      expect(environment?.['NO_PROXY'], name).toMatch(/^sandbox-provider,/)
  })

  it('every container drops all capabilities, has a read-only file system and has resource limits', () => {
    const oneShots = ['init', 'real-provider', 'doctor', 'cli']
    for (const [name, service] of all) {
      const isOneShot = oneShots.includes(name)
      expect(service, name).toMatchObject({
        cap_drop: ['ALL'],
        security_opt: ['no-new-privileges:true'],
        read_only: name !== 'real-provider',
        mem_limit: expect.any(String),
        cpus: 1,
        pids_limit: expect.any(Number),
        stop_grace_period: expect.any(String),
      })
      expect(service.cap_add !== undefined, name).toBe(['init', 'real-provider'].includes(name))
      expect(service.healthcheck !== undefined, name).toBe(!isOneShot)
    }
  })

  it('Redis, PostgreSQL and RabbitMQ are attached to the internal network only', () => {
    for (const name of ['redis', 'postgres', 'rabbitmq'])
      expect(services[name]).toMatchObject({ networks: ['backends'], user: '999:999' })
  })

  it('each service mounts only its own secrets, and no service mounts the volume with all secrets', () => {
    const mounts = (name: string): readonly string[] =>
      (services[name]?.volumes ?? []).filter((volume) => volume.includes('-secrets:'))
    for (const name of [
      'token-service',
      'accounting-gateway',
      'coordinator',
      'demo-api',
      'webhook-receiver',
      'console',
      'sandbox-provider',
      'doctor',
      'cli',
    ])
      expect(mounts(name)).toEqual([`${name}-secrets:/secrets:ro`])
    const withAll = all.filter(([name]) =>
      mounts(name).some((volume) => volume.startsWith('service-secrets:')),
    )
    expect(withAll.map(([name]) => name)).toEqual(['init', 'real-provider'])
  })

  it('only init, cli and the services that accept keys mount the key file, and the services cannot change the file', () => {
    const mounted = all.flatMap(([name, service]) =>
      (service.volumes ?? [])
        .filter((volume) => volume.startsWith('service-keys:'))
        .map((volume) => [name, volume.slice('service-keys:'.length)]),
    )
    expect(Object.fromEntries(mounted)).toEqual({
      init: '/volumes/service-keys',
      'token-service': '/keys:ro',
      'accounting-gateway': '/keys:ro',
      coordinator: '/keys:ro',
      cli: '/keys',
    })
  })

  it('only the services that accept the shared service key receive this key', () => {
    const withKey = all.filter(
      ([, { environment }]) => environment?.['SERVICE_API_KEY_FILE'] === '/secrets/service_api_key',
    )
    expect(withKey.map(([name]) => name)).toEqual([
      'token-service',
      'accounting-gateway',
      'coordinator',
    ])
  })

  it('docs/running.md and the help of the command line name the container that prints the key for applications', () => {
    const command = 'docker compose run --rm -T --entrypoint cat cli /secrets/application_key'
    for (const file of ['docs/running.md', 'packages/cli/src/command-line.ts', 'docs/access.md'])
      expect(readFileSync(join(root, file), 'utf8'), file).toContain(command)
    expect(services['cli']).toMatchObject({
      volumes: ['cli-secrets:/secrets:ro', expect.anything()],
    })
  })

  it('the services run with the inspector and core dumps disabled', () => {
    for (const [name, { command, ulimits }] of all) {
      if (!(command ?? []).some((word) => word.startsWith('services/'))) continue
      expect(command?.slice(0, 2), name).toEqual(['node', '--disable-sigusr1'])
      expect(ulimits, name).toEqual({ core: 0 })
    }
  })

  it('the compose file mounts only existing files of the repository and declared volumes', () => {
    const sources = all.flatMap(([, service]) =>
      (service.volumes ?? []).map((volume) => volume.split(':')[0] ?? ''),
    )
    const missing = sources.filter((source) =>
      source.startsWith('./') ? !existsSync(join(root, source)) : !(source in volumes),
    )
    expect(missing).toEqual([])
  })
})

describe('the ingress of the compose file', () => {
  it('HAProxy forwards each port to the service that listens on the same port', () => {
    expect(sections.length).toBeGreaterThan(0)
    for (const { name, bind, server } of sections) {
      expect(services).toHaveProperty(name)
      expect(server).toBe(`${name}:${bind}`)
    }
  })

  it('HAProxy names the client to the services that trust it, and removes what the client has written into the header', () => {
    const naming = haproxy.split(/^listen /m).filter((section) => /forwardfor/.test(section))
    expect(naming.map((section) => /^\S+/.exec(section)?.[0])).toEqual(['token-service', 'console'])
    for (const section of naming) {
      const removal = section.indexOf(
        'del-header X-Forwarded-For unless { src "${REVERSE_PROXY}" }',
      )
      expect(removal).toBeGreaterThan(0)
      expect(section.indexOf('option forwardfor')).toBeGreaterThan(removal)
    }
    const trusting = all.filter(([, { environment }]) => environment?.['TRUSTED_PROXIES'])
    expect(trusting.map(([name]) => name)).toEqual(['token-service', 'console'])
    expect(services['ingress']?.environment).toHaveProperty('REVERSE_PROXY')
  })

  it('HAProxy adds no other header, logs no path, and retries a request only if the connection to a server failed', () => {
    expect([...haproxy.matchAll(/^ *retry-on (.*)$/gm)].map(([, on]) => on)).toEqual([
      'conn-failure',
    ])
    // A path can contain an authorization code, so HAProxy must not log it.
    expect(haproxy).not.toMatch(/option forwarded|(?:add|set)-header|httplog|%(?:r|HU|HP|HQ|HPO)\b/)
    expect(haproxy).not.toMatch(/http-buffer-request/)
  })
})

describe('the monitoring profile of the compose file', () => {
  it('the monitoring profile pins Prometheus and Grafana to one version each', () => {
    expect(monitoring.map(([name]) => name)).toEqual(['prometheus', 'grafana'])
    for (const [, { image }] of monitoring) expect(image).toMatch(/:v?\d+\.\d+\.\d+$/)
  })

  it('the containers of the monitoring profile cannot reach the backends, and write only to their own volume', () => {
    for (const [, service] of monitoring) {
      expect(service.networks).toEqual(['edge'])
      expect(service.read_only).toBe(true)
      for (const volume of service.volumes ?? [])
        expect(volume).toMatch(/^(?:\.\/deploy\/.*:ro|prometheus-data:\/prometheus)$/)
    }
  })

  it('Prometheus scrapes every service that serves metrics, at the port on which the service listens', () => {
    const { scrape_configs: jobs } = parse(
      readFileSync(join(root, 'deploy/prometheus/prometheus.yml'), 'utf8'),
    ) as {
      scrape_configs: {
        job_name: string
        dns_sd_configs?: { names: string[]; port: number }[]
        static_configs?: { targets: string[] }[]
      }[]
    }
    for (const {
      job_name: job,
      dns_sd_configs: byName = [],
      static_configs: byHost = [],
    } of jobs) {
      const scraped = [
        ...byName.flatMap(({ names, port }) => names.map((name) => `${name}:${port}`)),
        ...byHost.flatMap(({ targets }) => targets),
      ]
      const served = sections.filter(({ name }) => name === job)
      expect(scraped).toEqual(served.map(({ server }) => server))
    }
    expect(jobs.map(({ job_name: job }) => job)).toEqual([
      'token-service',
      'accounting-gateway',
      'coordinator',
      'webhook-receiver',
      'console',
      'demo-api',
    ])
  })
})
