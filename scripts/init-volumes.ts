// Prepares the volumes of a compose stack at each start: sets the owner of every file, creates secrets once and never
// replaces them, and rewrites the files that are derived from them.
import { createHash, randomBytes } from 'node:crypto'
import { lchownSync, lstatSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parseKeyRing } from '../packages/shared/src/secrets/envelope.ts'
import { Secret } from '../packages/shared/src/secrets/secret.ts'
import {
  BACKENDS,
  readSecret,
  PROVIDER_REJECTION,
  SANDBOX_DISCOVERY_URL,
  SERVICES,
  writeSecret,
} from './secret-file.ts'

/** The folder in which each volume is mounted under its name in docker-compose.yml. */
const ROOT = process.argv[2] ?? '/volumes'
const at = (path: string): string => join(ROOT, path)

const owners = {
  'redis-data': BACKENDS,
  'postgres-data': BACKENDS,
  'rabbitmq-data': BACKENDS,
  'order-data': SERVICES,
  'sandbox-data': SERVICES,
} as const
type DataVolume = keyof typeof owners

// The rejection is reported once and deleted, because the next start may be without `--profile real`.
const rejection = readSecret(at(`service-secrets/${PROVIDER_REJECTION}`))
if (rejection !== null) {
  rmSync(at(`service-secrets/${PROVIDER_REJECTION}`))
  console.error(rejection)
  process.exit(1)
}

interface Made {
  readonly make: () => string
  /** Returns why the secret is not valid; `null` if it is. */
  readonly flaw: (content: string) => string | null
  /** The volume whose content cannot be read without exactly this secret. */
  readonly opens?: DataVolume
}

const problems: string[] = []

/** Creates a secret if it does not exist. An existing one is never replaced, because data depends on it; it must be valid. */
function keep(path: string, uid: number, { make, flaw, opens }: Made): string {
  const kept = readSecret(at(path))
  if (kept === null && opens !== undefined && readdirSync(at(opens)).length > 0)
    problems.push(
      `${path} is missing, and without it the data in ${opens} cannot be opened: restore it from your backup`,
    )
  const wrong = kept === null ? null : flaw(kept)
  if (wrong !== null) problems.push(`${path} ${wrong}: restore it from your backup`)
  const content = kept ?? make()
  // Creates nothing while there is any problem, so that the next start reports the same problems.
  if (problems.length === 0) writeSecret(at(path), uid, content)
  return content
}

const password: Made = {
  make: () => randomBytes(32).toString('base64url'),
  flaw: (content) =>
    content.split(',').every((key) => /^[\x21-\x7e]{32,512}$/.test(key.trim()))
      ? null
      : 'must have 32 printable characters or more',
}
const keyRing: Made = {
  make: () => `k1:${randomBytes(32).toString('base64')}`,
  flaw(content) {
    try {
      parseKeyRing(new Secret(content.trim()))
      return null
    } catch (error) {
      return `is not a key ring (${(error as Error).message})`
    }
  },
}

const postgres = keep('postgres-secrets/password', BACKENDS, {
  ...password,
  opens: 'postgres-data',
})
const redis = keep('redis-secrets/password', BACKENDS, password)
const broker = keep('rabbitmq-secrets/password', BACKENDS, password)
const brokerConsole = keep('rabbitmq-secrets/console_password', BACKENDS, password)
const sandbox = keep('service-secrets/sandbox_client_secret', SERVICES, password)
keep('service-secrets/service_api_key', SERVICES, password)
keep('service-secrets/credential_keys', SERVICES, { ...keyRing, opens: 'redis-data' })

if (problems.length > 0) {
  console.error(
    [
      'The volumes of this installation do not match each other:',
      ...problems.map((line) => `  ${line},`),
    ]
      .join('\n')
      .concat('\n  or delete all data and start over: docker compose down --volumes'),
  )
  process.exit(1)
}

writeSecret(
  at('service-secrets/database_url'),
  SERVICES,
  `postgres://integration:${postgres}@postgres:5432/integration`,
)
writeSecret(at('service-secrets/redis_url'), SERVICES, `redis://integration:${redis}@redis:6379`)
writeSecret(at('service-secrets/amqp_url'), SERVICES, `amqp://integration:${broker}@rabbitmq:5672`)
writeSecret(at('redis-secrets/redis.conf'), BACKENDS, redisConf())
writeSecret(at('rabbitmq-secrets/definitions.json'), BACKENDS, brokerDefinitions())

// If init-provider.ts has configured another provider, its settings are kept.
const provider = readSecret(at('service-secrets/discovery_url'))
if (provider === null || provider === SANDBOX_DISCOVERY_URL) {
  const settings = {
    discovery_url: SANDBOX_DISCOVERY_URL,
    accounting_url: new URL(SANDBOX_DISCOVERY_URL).origin,
    client_id: 'integration-host',
    client_secret: sandbox,
    redirect: process.env['SANDBOX_REDIRECT'] ?? 'http://127.0.0.1:7217/callback',
  }
  for (const [name, content] of Object.entries(settings))
    writeSecret(at(`service-secrets/${name}`), SERVICES, content)
}

for (const [volume, uid] of Object.entries(owners)) give(at(volume), uid)

/** Sets the owners as the entrypoints of the official images do if they start as root. */
function give(path: string, uid: number): void {
  const entry = lstatSync(path)
  if (entry.uid !== uid) lchownSync(path, uid, uid)
  if (entry.isDirectory()) for (const name of readdirSync(path)) give(join(path, name), uid)
}

function redisConf(): string {
  return [
    // A lost write may be a lost refresh token. So Redis flushes every write before it replies, and evicts no key.
    'appendonly yes',
    'appendfsync always',
    'maxmemory-policy noeviction',
    // Below the container's memory limit, so that Redis rejects a write instead of being killed for lack of memory.
    'maxmemory 384mb',
    'dir /data',
    // Disabled for clients, but with every permission: Redis replays its append-only file as this user and skips
    // transactions that the user may not run, with one line in its log (redis/redis#14541).
    'user default off ~* &* +@all',
    `user integration on #${createHash('sha256').update(redis).digest('hex')} ~* &* +@all -@dangerous +info +config|get +acl|getuser +client +keys`,
    '',
  ].join('\n')
}

function brokerDefinitions(): string {
  const everything = { vhost: '/', configure: '.*', write: '.*', read: '.*' }
  const user = (name: string, secret: string, tags: readonly string[]) => ({
    name,
    password_hash: brokerHash(secret),
    hashing_algorithm: 'rabbit_password_hashing_sha256',
    tags,
  })
  return JSON.stringify(
    {
      users: [user('integration', broker, []), user('console', brokerConsole, ['administrator'])],
      vhosts: [{ name: '/' }],
      permissions: [
        { user: 'integration', ...everything },
        { user: 'console', ...everything },
      ],
      // The recommended policies, which operators of other brokers import too.
      ...JSON.parse(readFileSync(join(import.meta.dirname, '../deploy/definitions.json'), 'utf8')),
    },
    null,
    2,
  )
}

/**
 * Returns RabbitMQ's salted password hash: base64 of the salt and the SHA-256 of salt and password. The salt
 * is derived from the password, so an unchanged password changes no file.
 */
function brokerHash(secret: string): string {
  const sha256 = (...parts: readonly (string | Buffer)[]): Buffer =>
    parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest()
  const salt = sha256('salt', secret).subarray(0, 4)
  return Buffer.concat([salt, sha256(salt, secret)]).toString('base64')
}
