/**
 * Steps of `npm run test:compose` that check the secrets and accounts of each service
 * (scripts/backend-accounts.ts).
 */
import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, until } from './check.ts'
import { type Stack, words } from './stack.ts'

/** The files that each container must have in `/secrets`. */
const SECRETS: Readonly<Record<string, string>> = {
  'token-service':
    'accounting_url amqp_url client_id client_secret credential_keys discovery_url redirect redis_url service_api_key',
  'accounting-gateway': 'accounting_url amqp_url redis_url service_api_key',
  coordinator: 'amqp_url database_url service_api_key',
  'demo-api': 'demo_api_key',
  'webhook-receiver': 'amqp_url webhook_verifier_tokens',
  console: 'console_key console_password users',
  'sandbox-provider': 'sandbox_client_secret sandbox_verifier_token',
  doctor: 'amqp_url database_url discovery_url operator_key redis_url',
  cli: 'application_key operator_key',
}
const RUN_ONCE = ['doctor', 'cli']
/** The containers that mount the key file, which has the digests of keys. Only `cli` may change this file. */
const READ_KEY_FILE = ['token-service', 'accounting-gateway', 'coordinator', 'cli']

/**
 * Checks that each container has exactly the secrets that its service needs, and that only `cli` can change the key
 * file.
 */
export async function holdsOwnSecretsOnly(stack: Stack): Promise<void> {
  const script = `ls -A /secrets; echo --; ls -A /keys 2>/dev/null | grep -v lock; echo --
    for f in /secrets/*; do cat "$f" >/dev/null 2>&1 || echo "cannot read $f"; done
    ! touch /secrets/x 2>/dev/null || echo "can write secrets"
    ! touch /keys/x 2>/dev/null || { rm /keys/x; echo "can write keys"; }`
  for (const [service, wanted] of Object.entries(SECRETS)) {
    const run = RUN_ONCE.includes(service)
      ? words(`run --rm -T --entrypoint sh ${service}`)
      : words(`exec -T ${service} sh`)
    const [files, keys, faults] = (await stack.compose([...run, '-c', script])).split('--\n')
    const present = (files ?? '').split('\n').filter(Boolean).toSorted().join(' ')
    expect(present === wanted, `${service} has the secrets ${present}`)
    const hasKeys = READ_KEY_FILE.includes(service)
    expect(keys?.trim() === (hasKeys ? 'service_keys.json' : ''), `${service} has /keys: ${keys}`)
    const allowed = service === 'cli' ? 'can write keys' : ''
    expect(faults?.trim() === allowed, `${service} ${faults}`)
  }
}

/** Checks that the gateway's accounts can read no credential in Redis and no step message in RabbitMQ. */
export async function deniesForeignData(stack: Stack, realm: string): Promise<void> {
  const url = new URL(await stack.read('accounting-gateway', '/secrets/redis_url'))
  const gateway = (...command: readonly string[]) =>
    stack.compose([
      ...words(`exec -T -e REDISCLI_AUTH=${url.password} redis redis-cli --user ${url.username}`),
      ...command,
    ])
  const reply = await gateway('HGETALL', `ACC-${realm}`)
  expect(reply.includes('NOPERM'), `the gateway's account read a credential: ${reply.length} bytes`)
  const permissions = (await stack.management('GET', 'permissions')) as readonly {
    readonly user: string
    readonly read: string
  }[]
  const open = permissions.filter(({ user, read }) => user !== 'console' && read === '.*')
  expect(
    open.length === 0,
    `accounts with every permission: ${open.map(({ user }) => user).join()}`,
  )
}

/** Checks that SIGUSR1 does not open Node's inspector in a service. */
export async function ignoresSigusr1(stack: Stack): Promise<void> {
  const [container = ''] = await stack.containers('demo-api')
  await stack.docker(['kill', '--signal', 'USR1', container])
  const { status } = await fetch(`${stack.at('DEMO_API_PORT')}/health/live`)
  expect(status === 200, `the demo API responds with ${status} after SIGUSR1`)
  const { text } = await stack.docker(['logs', container])
  expect(!text.includes('Debugger listening'), 'SIGUSR1 opened the inspector')
}

/** Checks that the image contains no private key of a test. */
export async function hasNoPrivateKey(stack: Stack): Promise<void> {
  const search =
    "find /app -name node_modules -prune -o -type f -exec grep -l -e '-BEGIN.*PRIVATE KEY-' {} +"
  const { text } = await stack.init('sh', '-c', `${search} || true`)
  const files = text.split('\n').filter((line) => line.startsWith('/app/'))
  expect(files.length === 0, `files with a private key: ${files.join(', ')}`)
}

/** Returns a random password for the volumes that `firstReleaseVolumes` creates. */
const old = (): string => randomBytes(32).toString('base64url')

/**
 * Creates volumes of release 0.1, in which all services share one account at Redis and one at RabbitMQ. Starts the
 * servers with these volumes, and upgrades with `docker compose up`. The data must remain, and the shared accounts
 * must be disabled.
 */
export async function firstReleaseVolumes(stack: Stack): Promise<void> {
  const secrets = { redis: old(), rabbitmq: old(), postgres: old(), key: old() }
  const credentialKeys = `k1:${randomBytes(32).toString('base64')}`
  const all = { configure: '.*', write: '.*', read: '.*' }
  const definitions = {
    users: [{ name: 'integration', password: secrets.rabbitmq, tags: [] }],
    vhosts: [{ name: '/' }],
    permissions: [{ user: 'integration', vhost: '/', ...all }],
  }
  const files: Readonly<Record<string, readonly [content: string, uid: number]>> = {
    'service-secrets/service_api_key': [secrets.key, 1000],
    'service-secrets/credential_keys': [credentialKeys, 1000],
    'service-secrets/redis_url': [`redis://integration:${secrets.redis}@redis:6379`, 1000],
    'service-secrets/amqp_url': [`amqp://integration:${secrets.rabbitmq}@rabbitmq:5672`, 1000],
    'postgres-secrets/password': [secrets.postgres, 999],
    'redis-secrets/password': [secrets.redis, 999],
    'redis-secrets/redis.conf': [
      `appendonly yes\ndir /data\nuser default off ~* &* +@all\nuser integration on >${secrets.redis} ~* &* +@all\n`,
      999,
    ],
    'rabbitmq-secrets/password': [secrets.rabbitmq, 999],
    'rabbitmq-secrets/definitions.json': [JSON.stringify(definitions), 999],
  }
  const script = Object.entries(files)
    .map(([path, [content, uid]]) => {
      const encoded = Buffer.from(content).toString('base64')
      const file = `/volumes/${path}`
      return `echo ${encoded} | base64 -d > ${file} && chown ${uid}:${uid} ${file} && chmod 400 ${file}`
    })
    .concat('chown 999:999 /volumes/redis-data /volumes/postgres-data /volumes/rabbitmq-data')
    .join(' && ')
  const created = await stack.init('sh', '-c', script)
  expect(created.code === 0, created.text)

  const asShared = (...command: readonly string[]) =>
    stack.compose([
      ...words(`exec -T -e REDISCLI_AUTH=${secrets.redis} redis redis-cli --user integration`),
      ...command,
    ])
  const canLogIn = async (): Promise<boolean> => {
    const login = `exec -T rabbitmq rabbitmqctl authenticate_user integration ${secrets.rabbitmq}`
    return (await stack.tryCompose(words(login))).code === 0
  }
  const folder = await mkdtemp(join(tmpdir(), 'first-release-'))
  try {
    // The servers of release 0.1 have no label `integration-host.accounts`, so the upgrade recreates them. Here the
    // label has another value than in docker-compose.yml, which has the same effect.
    const labels = { labels: { 'integration-host.accounts': '0' } }
    const override = join(folder, 'override.json')
    await writeFile(override, JSON.stringify({ services: { redis: labels, rabbitmq: labels } }))
    await stack.compose(words('up --wait --no-deps redis rabbitmq postgres'), {
      COMPOSE_FILE: `docker-compose.yml:${override}`,
    })
  } finally {
    await rm(folder, { recursive: true })
  }
  await until('RabbitMQ accepts the shared account', canLogIn)
  await asShared('SET', 'credentials:of-the-first-release', 'kept')

  await stack.compose(['up', '--wait'])
  await holdsOwnSecretsOnly(stack)
  const key = await stack.read('token-service', '/secrets/service_api_key')
  const keys = await stack.read('token-service', '/secrets/credential_keys')
  expect(key === secrets.key && keys === credentialKeys, 'a secret was replaced')
  for (const accepted of [secrets.key, await stack.heldKey('application')]) {
    const headers = { Authorization: `Bearer ${accepted}` }
    const { status } = await fetch(`${stack.at('COORDINATOR_PORT')}/processes`, { headers })
    expect(status === 200, `the coordinator responds with ${status} to a key`)
  }
  const { status } = await fetch(`${stack.at('DEMO_API_PORT')}/queue?number=upgraded`)
  expect(status === 200, `the demo API responds with ${status} after the upgrade`)
  const reply = await asShared('PING')
  expect(/WRONGPASS|NOAUTH/.test(reply), `Redis accepts the shared account: ${reply}`)
  expect(!(await canLogIn()), 'RabbitMQ accepts the shared account')
  const url = new URL(await stack.read('token-service', '/secrets/redis_url'))
  const kept = await stack.compose(
    words(
      `exec -T -e REDISCLI_AUTH=${url.password} redis redis-cli --user token-service GET credentials:of-the-first-release`,
    ),
  )
  expect(kept.trim() === 'kept', `the data of the previous release is missing: ${kept}`)
}
