/**
 * Validates deploy/kubernetes against the Kubernetes schemas and against the settings that the services read,
 * and checks that the manifests are consistent with each other.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Deployment } from 'kubernetes-models/apps/v1'
import { HorizontalPodAutoscaler } from 'kubernetes-models/autoscaling/v2'
import { Ingress, NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1'
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1'
import { ConfigMap, Namespace, PersistentVolumeClaim, Service } from 'kubernetes-models/v1'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { brokerPermissions, redisRules } from '../scripts/backend-accounts.ts'
import { allQueues } from './support/topology.ts'

const kinds = {
  'apps/v1 Deployment': Deployment,
  'autoscaling/v2 HorizontalPodAutoscaler': HorizontalPodAutoscaler,
  'networking.k8s.io/v1 Ingress': Ingress,
  'networking.k8s.io/v1 NetworkPolicy': NetworkPolicy,
  'policy/v1 PodDisruptionBudget': PodDisruptionBudget,
  'v1 ConfigMap': ConfigMap,
  'v1 Namespace': Namespace,
  'v1 PersistentVolumeClaim': PersistentVolumeClaim,
  'v1 Service': Service,
} as const

interface Labels {
  readonly [name: string]: string
}
interface Selector {
  readonly matchLabels?: Labels
  readonly matchExpressions?: readonly {
    readonly key: string
    readonly values: readonly string[]
  }[]
}
interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string; readonly labels?: Labels }
}
interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string }
}
interface Container {
  readonly command: readonly string[]
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[]
  readonly envFrom: readonly { readonly configMapRef: { readonly name: string } }[]
  readonly env: readonly { readonly name: string; readonly value: string }[]
  readonly startupProbe: Probe
  readonly readinessProbe: Probe
  readonly livenessProbe: Probe
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
}
interface Volume {
  readonly name: string
  readonly persistentVolumeClaim?: { readonly claimName: string }
  readonly projected?: {
    readonly sources: readonly {
      readonly secret: {
        readonly name: string
        readonly items: readonly { key: string; path: string }[]
      }
    }[]
  }
}
interface Workload extends Manifest {
  readonly spec: {
    readonly selector: Selector
    readonly template: {
      readonly metadata: { readonly labels: Labels }
      readonly spec: {
        readonly containers: readonly [Container]
        readonly volumes: readonly Volume[]
        readonly topologySpreadConstraints: readonly {
          readonly topologyKey: string
          readonly labelSelector: Selector
        }[]
      }
    }
  }
}
interface Kustomization {
  readonly resources: readonly string[]
  readonly configMapGenerator: readonly {
    readonly name: string
    readonly literals: readonly string[]
  }[]
  readonly patches?: readonly { readonly path: string }[]
}

const root = join(import.meta.dirname, '..')
const read = (path: string): string => readFileSync(join(root, path), 'utf8')
const documents = (path: string): unknown[] =>
  parseAllDocuments(read(path)).map((document) => document.toJS() as unknown)
const kustomization = (folder: string): Kustomization =>
  documents(`${folder}/kustomization.yaml`)[0] as Kustomization
const manifests = (folder: string, files: readonly string[]): Manifest[] =>
  files
    .filter((file) => file.endsWith('.yaml'))
    .flatMap((file) => documents(`${folder}/${file}`) as Manifest[])

/** The path is written as in services/webhook-receiver/src/routes/intuit-webhook.ts, which other packages cannot import. */
const INTUIT_PATH = '/webhooks/intuit'
const BASE = 'deploy/kubernetes/base'
const EXAMPLE = 'deploy/kubernetes/overlays/example'
const base = manifests(BASE, kustomization(BASE).resources)
const added = manifests(EXAMPLE, kustomization(EXAMPLE).resources)
const patches = manifests(
  EXAMPLE,
  (kustomization(EXAMPLE).patches ?? []).map(({ path }) => path),
)
const titleOf = ({ kind, metadata }: Manifest): string => `${kind} ${metadata.name}`
const ofKind = <Kind extends Manifest>(kind: string): Kind[] =>
  base.filter((manifest): manifest is Kind => manifest.kind === kind)
const deployments = ofKind<Workload>('Deployment')
const names = deployments.map(({ metadata }) => metadata.name)

/**
 * Returns the violations of a manifest against the schema of its kind. The validators do not report members that the
 * schema does not have. Therefore proxies around the manifest record which members the validators read. If no
 * validator reads a member, the member is not in the schema.
 */
function faultsOf(manifest: Manifest): string[] {
  const Model = kinds[`${manifest.apiVersion} ${manifest.kind}` as keyof typeof kinds] as
    | (new (data: never) => { validate(): void })
    | undefined
  if (Model === undefined) return [`there is no ${manifest.apiVersion} ${manifest.kind}`]
  const unread = new Set<string>()
  const watched = (value: unknown, path: string): unknown => {
    if (typeof value !== 'object' || value === null) return value
    if (Array.isArray(value)) return value.map((item, index) => watched(item, `${path}/${index}`))
    const members = Object.entries(value).map(
      ([name, member]) => [name, watched(member, `${path}/${name}`)] as const,
    )
    for (const [name] of members) unread.add(`${path}/${name}`)
    return new Proxy(Object.fromEntries(members), {
      get(target, name, receiver) {
        unread.delete(`${path}/${String(name)}`)
        return Reflect.get(target, name, receiver) as unknown
      },
      // In a map such as the labels, the schema allows any key, so a validator lists the keys of the map. Listing the
      // keys counts as reading them.
      ownKeys(target) {
        for (const name of Object.keys(target)) unread.delete(`${path}/${name}`)
        return Reflect.ownKeys(target)
      },
    })
  }
  try {
    const model = new Model({} as never)
    // The constructor would copy all members, and the copied members would count as read. Therefore the object is
    // created without its constructor.
    for (const [name, member] of Object.entries(manifest))
      Object.defineProperty(model, name, { value: watched(member, `/${name}`), enumerable: true })
    model.validate()
  } catch (error) {
    return [error instanceof Error ? error.message : 'not valid']
  }
  return [...unread].map((path) => `${path} is not a member`)
}

describe('the Kubernetes manifests', () => {
  it.each([...base, ...added].map((manifest) => [titleOf(manifest), manifest] as const))(
    'the Kubernetes manifest %s conforms to its schema',
    (_, manifest) => {
      expect(faultsOf(manifest)).toEqual([])
    },
  )

  it('the manifests contain each required kind of Kubernetes resource for every service, under unique names', () => {
    const titles = base.map(titleOf)
    expect(new Set(titles).size).toBe(titles.length)
    for (const kind of ['Deployment', 'Service', 'PodDisruptionBudget', 'HorizontalPodAutoscaler'])
      expect(ofKind(kind).map(({ metadata }) => metadata.name)).toEqual([
        'token-service',
        'accounting-gateway',
        'coordinator',
        'webhook-receiver',
      ])
  })

  it('the Kubernetes manifests contain no secret, and no replica count that would conflict with the autoscaler', () => {
    expect(base.filter(({ kind }) => kind === 'Secret')).toEqual([])
    for (const { spec } of deployments) expect(spec).not.toHaveProperty('replicas')
  })
})

describe.each(deployments.map((workload) => [workload.metadata.name, workload] as const))(
  'the pods of %s',
  (name, { spec }) => {
    const { metadata, spec: pod } = spec.template
    const [container] = pod.containers
    const settings = new Set(
      [...read('docs/settings.md').matchAll(/`([A-Z][A-Z_]+)`/g)].map(([, s]) => s),
    )
    const secretFiles = pod.volumes.flatMap(({ projected }) =>
      (projected?.sources ?? []).flatMap(({ secret }) => secret.items),
    )

    it('each pod runs the service that its Deployment names, on the port that its Kubernetes Service and its probes use', () => {
      expect(container.command).toEqual([
        'sh',
        '-c',
        `ulimit -c 0 && exec node --disable-sigusr1 services/${name}/src/main.ts`,
      ])
      const port = /listenSettings\((\d+)\)/.exec(read(`services/${name}/src/config.ts`))?.[1]
      expect(container.ports).toEqual([{ name: 'http', containerPort: Number(port) }])
      const service = base.find((other) => titleOf(other) === `Service ${name}`) as Manifest & {
        spec: { selector: Labels; ports: unknown }
      }
      expect(service.spec.ports).toEqual([{ name: 'http', port: Number(port), targetPort: 'http' }])
      expect(metadata.labels).toMatchObject(service.spec.selector)
      const { startupProbe, readinessProbe, livenessProbe } = container
      expect([startupProbe, readinessProbe, livenessProbe].map(({ httpGet }) => httpGet)).toEqual([
        { path: '/health/ready', port: 'http' },
        { path: '/health/live', port: 'http' },
        { path: '/health/live', port: 'http' },
      ])
    })

    it('the pods are selected by their Deployment, PodDisruptionBudget and HorizontalPodAutoscaler', () => {
      expect(metadata.labels).toMatchObject(spec.selector.matchLabels ?? {})
      const budget = base.find((other) => titleOf(other) === `PodDisruptionBudget ${name}`)
      expect(budget).toMatchObject({ spec: { selector: spec.selector } })
      const scaler = base.find((other) => titleOf(other) === `HorizontalPodAutoscaler ${name}`)
      expect(scaler).toMatchObject({ spec: { scaleTargetRef: { kind: 'Deployment', name } } })
    })

    it('the pods are spread over zones and over nodes', () => {
      expect(pod.topologySpreadConstraints.map(({ topologyKey }) => topologyKey)).toEqual([
        'topology.kubernetes.io/zone',
        'kubernetes.io/hostname',
      ])
      for (const { labelSelector } of pod.topologySpreadConstraints)
        expect(labelSelector).toEqual(spec.selector)
    })

    it('the pods get every setting from an existing secret file or config map', () => {
      const maps = kustomization(BASE).configMapGenerator.map((map) => map.name)
      for (const { configMapRef } of container.envFrom) expect(maps).toContain(configMapRef.name)
      const files = secretFiles.map(({ path }) => `/secrets/${path}`)
      const named = container.env.filter((env) => env.name.endsWith('_FILE'))
      expect(named.map(({ value }) => value).toSorted(byText)).toEqual(files.toSorted(byText))
      const unknown = container.env
        .map((env) => env.name)
        .filter((env) => !settings.has(env) && !settings.has(env.replace(/_FILE$/, '')))
      expect(unknown).toEqual([])
    })

    // The provider sends notifications without a service key, and webhook-receiver calls no service.
    const hasKeys = name !== 'webhook-receiver'

    it('each pod mounts its own secret and, if it accepts keys, the shared service key and the digests of the other keys', () => {
      const mounted = pod.volumes.flatMap(({ projected }) =>
        (projected?.sources ?? []).map(({ secret }) => secret.name),
      )
      expect(mounted).toEqual([
        ...(hasKeys ? ['integration-host-service-key', 'integration-host-keys'] : []),
        `integration-host-${name}`,
      ])
    })

    it.runIf(hasKeys)(
      'the whole folder of the key file is mounted, so that a change of the file reaches the pods',
      () => {
        expect(container.env).toContainEqual({
          name: 'SERVICE_KEYS_FILE',
          value: '/secrets/service_keys.json',
        })
        for (const mount of container.volumeMounts) expect(mount).not.toHaveProperty('subPath')
      },
    )

    it('the pods mount only volumes that their manifest defines', () => {
      expect(container.volumeMounts.map((mount) => mount.name)).toEqual(
        pod.volumes.map((volume) => volume.name),
      )
      for (const { persistentVolumeClaim: claim } of pod.volumes)
        if (claim !== undefined)
          expect(base.map(titleOf)).toContain(`PersistentVolumeClaim ${claim.claimName}`)
    })
  },
)

describe('the network policies', () => {
  const policies = ofKind<Manifest & { spec: { podSelector: Selector } }>('NetworkPolicy')

  it('each network policy selects existing pods, and the default policy selects all pods', () => {
    const chosen = (selector: Selector): string[] =>
      deployments
        .filter(({ spec }) => selects(selector, spec.template.metadata.labels))
        .map(({ metadata }) => metadata.name)
    for (const policy of policies)
      expect(chosen(policy.spec.podSelector), titleOf(policy)).not.toEqual([])
    const fallback = policies.find(({ metadata }) => metadata.name === 'integration-host-default')
    expect(chosen(fallback?.spec.podSelector ?? {})).toEqual(names)
  })

  it('the network policies allow connections to Redis and to its Sentinels', () => {
    const all = [...policies, ...patches].filter(
      ({ metadata }) => metadata.name === 'backend-redis',
    )
    expect(all).toHaveLength(2)
    for (const policy of all) expect(JSON.stringify(policy)).toContain('"port":26379')
  })

  it('the network policies allow each service to reach only the backends in its configuration', () => {
    const backends = { rabbitmq: 'amqp_url', redis: 'redis_url', postgres: 'database_url' }
    for (const [backend, address] of Object.entries(backends)) {
      const policy = policies.find(({ metadata }) => metadata.name === `backend-${backend}`)
      const allowed = deployments.filter(({ spec }) =>
        selects(policy?.spec.podSelector ?? {}, spec.template.metadata.labels),
      )
      const given = deployments.filter(({ spec }) =>
        JSON.stringify(spec).includes(`"/secrets/${address}"`),
      )
      expect(allowed).toEqual(given)
    }
  })
})

describe('the example overlay', () => {
  it('the example overlay of the Kubernetes manifests patches only existing manifests', () => {
    expect(patches.length).toBeGreaterThan(0)
    for (const patch of patches) expect(base.map(titleOf)).toContain(titleOf(patch))
  })

  it('the base manifests and the example overlay set only documented settings', () => {
    const documented = read('docs/settings.md')
    for (const folder of [BASE, EXAMPLE])
      for (const { literals } of kustomization(folder).configMapGenerator)
        for (const literal of literals)
          expect(documented).toContain(`\`${literal.slice(0, literal.indexOf('='))}\``)
  })

  it('the example Ingress exposes only the paths that browsers need', () => {
    const ingress = added.find(({ kind }) => kind === 'Ingress') as Manifest & {
      spec: { rules: { http: { paths: { path: string; pathType: string }[] } }[] }
    }
    const paths = ingress.spec.rules.flatMap(({ http }) => http.paths)
    const open =
      /openPaths: \[([^\]]*)\]/
        .exec(read('services/token-service/src/app.ts'))?.[1]
        ?.match(/\/[\w/*]+/g) ?? []
    // The Ingress does not expose /authorize, which always responds 403 with the setting AUTHORIZE=links of the base
    // manifests.
    const published = [...open.filter((path) => path !== '/authorize'), '/decisions/*']
    const inRouter = ({ path, pathType }: { path?: string; pathType: string }) =>
      pathType === 'Prefix' ? `${path}/*` : path
    expect(paths.map(inRouter)).toEqual(published)
  })

  it('the second example Ingress exposes only the path for webhooks', () => {
    const [, ingress, ...more] = added.filter(({ kind }) => kind === 'Ingress')
    expect(more).toEqual([])
    expect(ingress).toMatchObject({
      spec: {
        rules: [
          {
            http: {
              paths: [
                {
                  path: INTUIT_PATH,
                  pathType: 'Exact',
                  backend: { service: { name: 'webhook-receiver' } },
                },
              ],
            },
          },
        ],
      },
    })
  })

  it('the example overlay lets the ingress controller reach only token-service, webhook-receiver and coordinator', () => {
    const open = patches.filter((patch) => JSON.stringify(patch).includes('ingress-nginx'))
    expect(open.map(titleOf)).toEqual([
      'NetworkPolicy token-service',
      'NetworkPolicy webhook-receiver',
      'NetworkPolicy coordinator',
    ])
  })
})

describe('the Kubernetes component with the console', () => {
  const COMPONENT = 'deploy/kubernetes/components/console'
  const parts = manifests(COMPONENT, kustomization(COMPONENT).resources)
  const [deployment] = parts as unknown as readonly [
    Workload & { readonly spec: { readonly replicas: number } },
  ]
  const { metadata, spec: pod } = deployment.spec.template
  const [container] = pod.containers

  it.each(parts.map((part) => [titleOf(part), part] as const))(
    'the manifest %s conforms to its schema',
    (_, part) => {
      expect(faultsOf(part)).toEqual([])
    },
  )

  it('the console runs in one pod, because sessions are in its memory', () => {
    expect(deployment.spec).toMatchObject({ replicas: 1, strategy: { type: 'Recreate' } })
    expect(container.command.at(-1)).toBe(
      'ulimit -c 0 && exec node --disable-sigusr1 --max-semi-space-size=4 services/console/src/main.ts',
    )
  })

  it('the pod of the console mounts only the secret that the commands in docs/console.md create', () => {
    const [{ projected }] = pod.volumes as readonly [Volume]
    const sources = (projected?.sources ?? []).map(({ secret }) => secret)
    expect(sources.map(({ name }) => name)).toEqual(['integration-host-console'])
    const files = container.env.filter(({ name }) => name.endsWith('_FILE'))
    expect(files.map(({ value }) => value)).toEqual(
      sources.flatMap(({ items }) => items.map(({ path }) => `/secrets/${path}`)),
    )
    const command = 'kubectl create secret generic integration-host-console'
    expect(read('docs/console.md')).toContain(
      `${command} --from-file=console_key --from-file=users`,
    )
  })

  it('the network policy of the console allows connections to each pod of the services and to no backend', () => {
    expect(metadata.labels).toEqual({
      'app.kubernetes.io/name': 'console',
      'integration-host/client': 'true',
    })
    for (const { value } of container.env.filter(({ name }) => name.endsWith('_URL'))) {
      const { hostname, port } = new URL(value)
      const service = hostname.replace(/-replicas$/, '')
      expect(names).toContain(service)
      expect(parts).toContainEqual(
        expect.objectContaining({
          metadata: expect.objectContaining({ name: hostname }),
          spec: {
            clusterIP: 'None',
            selector: { 'app.kubernetes.io/name': service },
            ports: [{ name: 'http', port: Number(port), targetPort: 'http' }],
          },
        }),
      )
    }
  })
})

describe('the Kubernetes component for backends with their own certificate authority', () => {
  const COMPONENT = 'deploy/kubernetes/components/backend-authorities'
  const patched = manifests(
    COMPONENT,
    (kustomization(COMPONENT).patches ?? []).map(({ path }) => path),
  ) as Workload[]

  it.each(patched.map((patch) => [patch.metadata.name, patch] as const))(
    'the component gives %s the CA certificate of each backend that the service uses',
    (name, { spec }) => {
      const { containers, volumes } = spec.template.spec
      const [{ env, volumeMounts, ...container }] = containers
      expect(container).toEqual({ name })
      const deployment = deployments.find(({ metadata }) => metadata.name === name)
      const backends = deployment?.spec.template.spec.containers[0].env.flatMap(
        (setting) => /^([A-Z]+)_URL_FILE$/.exec(setting.name)?.[1] ?? [],
      )
      const files = (backends ?? []).map((backend) => `${backend.toLowerCase()}_ca.pem`)
      expect(env).toEqual(
        (backends ?? []).map((backend, index) => ({
          name: `${backend}_CA_FILE`,
          value: `/authorities/${files[index]}`,
        })),
      )
      expect(volumeMounts).toEqual([
        { name: 'authorities', mountPath: '/authorities', readOnly: true },
      ])
      expect(volumes).toEqual([
        {
          name: 'authorities',
          configMap: {
            name: 'integration-host-authorities',
            items: files.map((file) => ({ key: file, path: file })),
          },
        },
      ])
      const documented = read('docs/settings.md')
      for (const setting of env) expect(documented).toContain(`\`${setting.name}\``)
    },
  )

  it('the Kubernetes component for certificate authorities patches every Deployment', () => {
    expect(patched.map(titleOf)).toEqual(deployments.map(titleOf))
  })
})

describe('the examples for the operators of the backends', () => {
  const EXAMPLES = 'deploy/kubernetes/examples'
  const resources = manifests(EXAMPLES, readdirSync(join(root, EXAMPLES)))
  /**
   * Returns the `spec` of a custom resource. It is not validated, because the schema of the resource is not available.
   */
  const specOf = (kind: string): unknown => {
    const found = resources.find((resource) => resource.kind === kind)
    if (found === undefined) throw new Error(`no example of ${kind}`)
    return (found as Manifest & { readonly spec: unknown }).spec
  }
  /** Returns the settings of a configuration file whose lines have the form `name value` or `name = value`. */
  const settingsOf = (file: string): ReadonlyMap<string, string> =>
    new Map(
      file
        .split('\n')
        .filter((line) => line !== '' && !line.startsWith('#'))
        .map((line) => (/^(\S+)(?: = | )(.*)$/.exec(line) ?? []).slice(1) as [string, string]),
    )
  const ZONE = 'topology.kubernetes.io/zone'

  it('the example manifests contain no secret, and their standard Kubernetes resources conform to the schemas', () => {
    expect(resources.filter(({ kind }) => kind === 'Secret')).toEqual([])
    const own = resources.filter(({ apiVersion }) => /^(?:v1|policy\/v1)$/.test(apiVersion))
    expect(own.map(titleOf)).toEqual(['PodDisruptionBudget rabbitmq', 'ConfigMap redis-settings'])
    expect(own.flatMap(faultsOf)).toEqual([])
  })

  it('the RabbitMQ example has three nodes in different zones, and the quorum queue settings of deploy/rabbitmq.conf', () => {
    const spec = specOf('RabbitmqCluster') as {
      replicas: number
      rabbitmq: { additionalConfig: string }
      override: { statefulSet: { spec: Workload['spec'] } }
    }
    expect(spec.replicas).toBe(3)
    const settings = settingsOf(spec.rabbitmq.additionalConfig)
    const shipped = [...settingsOf(read('deploy/rabbitmq.conf'))].filter(([name]) =>
      name.startsWith('quorum_queue.'),
    )
    expect(shipped).toHaveLength(3)
    for (const [name, value] of shipped) expect(settings.get(name), name).toBe(value)
    expect(Number(settings.get('net_ticktime'))).toBeLessThan(60)
    const [spread] = spec.override.statefulSet.spec.template.spec.topologySpreadConstraints
    expect(spread?.topologyKey).toBe(ZONE)
  })

  it('in the Redis example, a primary without its replicas rejects writes before Sentinel promotes a replica', () => {
    const { clusterSize, topologySpreadConstraints } = specOf('RedisReplication') as {
      clusterSize: number
      topologySpreadConstraints: { topologyKey: string }[]
    }
    expect([clusterSize, topologySpreadConstraints[0]?.topologyKey]).toEqual([3, ZONE])
    const { data } = resources.find(({ kind }) => kind === 'ConfigMap') as Manifest & {
      data: Record<string, string>
    }
    const settings = settingsOf(data['redis-additional.conf'] ?? '')
    expect(Object.fromEntries(settings)).toMatchObject({
      appendonly: 'yes',
      'maxmemory-policy': 'noeviction',
      'min-replicas-to-write': '1',
    })
    const sentinel = specOf('RedisSentinel') as {
      clusterSize: number
      redisSentinelConfig: { quorum: string; downAfterMilliseconds: string }
    }
    expect(sentinel).toMatchObject({ clusterSize: 3, redisSentinelConfig: { quorum: '2' } })
    expect(Number(settings.get('min-replicas-max-lag')) * 1_000).toBeLessThan(
      Number(sentinel.redisSentinelConfig.downAfterMilliseconds),
    )
  })

  it('every commit in the PostgreSQL example waits for one of two standbys in other zones', () => {
    expect(specOf('Cluster')).toMatchObject({
      instances: 3,
      postgresql: {
        synchronous: { method: 'any', number: 1, dataDurability: 'required', failoverQuorum: true },
      },
      affinity: { podAntiAffinityType: 'required', topologyKey: ZONE },
    })
  })
})

describe('the commands and tables in docs/kubernetes.md', () => {
  it('docs/kubernetes.md shows the permissions of each account at Redis and RabbitMQ', () => {
    const guide = read('docs/kubernetes.md')
    for (const name of ['token-service', 'accounting-gateway'] as const)
      expect(guide).toContain(
        `ACL SETUSER ${name} on '>…' ${redisRules(name).map(quoted).join(' ')}`,
      )
    for (const name of [
      'token-service',
      'accounting-gateway',
      'coordinator',
      'webhook-receiver',
    ] as const) {
      const { configure, write, read: reads } = brokerPermissions(name)
      expect(guide).toContain(
        `rabbitmqctl set_permissions ${name} '${configure}' '${write}' '${reads}'`,
      )
    }
  })

  it('the account of the coordinator has the permissions for every queue that a coordinator may declare', () => {
    for (const { name } of allQueues)
      for (const permission of Object.values(brokerPermissions('coordinator', 'acme.')))
        expect(`acme.${name}`).toMatch(new RegExp(permission))
  })

  it('docs/kubernetes.md creates every secret that the pods mount, with the keys that the pods read', () => {
    const guide = read('docs/kubernetes.md')
    for (const { spec } of deployments)
      for (const { projected } of spec.template.spec.volumes)
        for (const { secret } of projected?.sources ?? []) {
          const command = new RegExp(`create secret generic ${secret.name}((?:.*\\\\\n)*.*)`).exec(
            guide,
          )
          for (const { key } of secret.items) expect(command?.[1], secret.name).toContain(key)
        }
  })
})

describe('the schema check of Kubernetes manifests', () => {
  const [deployment] = deployments
  it.each([
    [
      'a member that the schema does not define',
      { readinesProbe: {} },
      /readinesProbe is not a member/,
    ],
    ['a value of another type', { replicas: 'two' }, /replicas must be integer/],
  ])('the schema check of Kubernetes manifests reports %s', (_, wrong, fault) => {
    const manifest = { ...deployment, spec: { ...deployment?.spec, ...wrong } } as Workload
    expect(faultsOf(manifest)).toEqual([expect.stringMatching(fault)])
  })
})

/** Quotes a word if it contains a character that has a special meaning in a shell. */
const quoted = (word: string): string => (/[*~|]/.test(word) ? `'${word}'` : word)
const byText = (a: string, b: string): number => a.localeCompare(b)

function selects({ matchLabels = {}, matchExpressions = [] }: Selector, labels: Labels): boolean {
  return (
    Object.entries(matchLabels).every(([name, value]) => labels[name] === value) &&
    matchExpressions.every(({ key, values }) => values.includes(labels[key] ?? ''))
  )
}
