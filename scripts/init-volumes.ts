// Prepares the volumes of a compose stack at each start. It sets the owner of every file, creates missing secrets, and
// writes the files that are derived from the secrets. It never replaces an existing secret. Each service gets a volume
// with only the secrets that it needs.
import { createHash, randomBytes } from 'node:crypto'
import { chmodSync, lchownSync, lstatSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { userLine } from '../packages/shared/src/access/user-line.ts'
import { parseKeyRing } from '../packages/shared/src/secrets/envelope.ts'
import { Secret } from '../packages/shared/src/secrets/secret.ts'
import {
  type BrokerAccountName,
  brokerAccounts,
  brokerPermissions,
  type RedisAccountName,
  redisAccounts,
  redisUser,
} from './backend-accounts.ts'
import { keyFileFlaw, type KeyHolder, keysOfHolders } from './installation-keys.ts'
import {
  BACKENDS,
  INIT,
  readSecret,
  PROVIDER_REJECTION,
  SANDBOX_DISCOVERY_URL,
  SERVICES,
  writeSecret,
} from './secret-file.ts'

/** The folder that contains all volumes, each mounted under its name in docker-compose.yml. */
const ROOT = process.argv[2] ?? '/volumes'
const at = (path: string): string => join(ROOT, path)

/**
 * The file with the digests of the callers' keys. All services that accept keys read this file, and the container `cli`
 * changes it.
 */
const KEY_FILE = 'service-keys/service_keys.json'

/** The folder from which the volumes of all services are filled. Only `init` and `real-provider` mount this folder. */
const STORE = 'service-secrets'

const owners = {
  'redis-data': BACKENDS,
  'postgres-data': BACKENDS,
  'rabbitmq-data': BACKENDS,
  'service-keys': SERVICES,
  'order-data': SERVICES,
  'sandbox-data': SERVICES,
} as const
type DataVolume = keyof typeof owners

// The file with the reason why the provider settings were rejected. The reason is printed once and then deleted,
// because the next start may be without `--profile real`.
const rejection = readSecret(at(`${STORE}/${PROVIDER_REJECTION}`))
if (rejection !== null) {
  rmSync(at(`${STORE}/${PROVIDER_REJECTION}`))
  console.error(rejection)
  process.exit(1)
}

interface Made {
  readonly make: () => string
  /** Returns why the secret is not valid; `null` if the secret is valid. */
  readonly flaw: (content: string) => string | null
  /** The data volume that cannot be read without this secret. */
  readonly opens?: DataVolume
}

const problems: string[] = []

/**
 * Returns the stored secret, or creates it if it does not exist. An existing secret is never replaced, because
 * stored data depends on it. An invalid secret is reported as a problem.
 */
function keep(path: string, uid: number, { make, flaw, opens }: Made): string {
  const kept = readSecret(at(path))
  if (kept === null && opens !== undefined && readdirSync(at(opens)).length > 0)
    problems.push(
      `${path} is missing, and without it the data in ${opens} cannot be opened: restore it from your backup`,
    )
  const wrong = kept === null ? null : flaw(kept)
  if (wrong !== null) problems.push(`${path} ${wrong}: restore it from your backup`)
  const content = kept ?? make()
  // After a problem no secret is created, so that the next start reports the same problems again.
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
const brokerConsole = keep('rabbitmq-secrets/console_password', BACKENDS, password)
const isNewConsole = readSecret(at(`${STORE}/console_password`)) === null
const consolePassword = keep(`${STORE}/console_password`, INIT, password)
const sandbox = keep(`${STORE}/sandbox_client_secret`, INIT, password)
const sandboxVerifierToken = keep(`${STORE}/sandbox_verifier_token`, INIT, password)
const serviceKey = keep(`${STORE}/service_api_key`, INIT, password)
const credentialKeys = keep(`${STORE}/credential_keys`, INIT, { ...keyRing, opens: 'redis-data' })
const redisPasswords = passwordsOf(redisAccounts, 'redis')
const brokerPasswords = passwordsOf(brokerAccounts, 'amqp')

/** Returns the password of each account of a backend, and creates the missing passwords. */
function passwordsOf<Name extends string>(
  accounts: Readonly<Record<Name, unknown>>,
  backend: 'redis' | 'amqp',
): Readonly<Record<Name, string>> {
  const names = Object.keys(accounts) as Name[]
  const entries = names.map((name) => [
    name,
    keep(`${STORE}/${backend}_password_${name}`, INIT, password),
  ])
  return Object.fromEntries(entries) as Record<Name, string>
}

const keyFileProblem = await keyFileFlaw(at(KEY_FILE))
if (keyFileProblem !== null)
  problems.push(
    `${KEY_FILE} ${keyFileProblem}: correct it, or remove it, and the keys that were made by hand with it`,
  )

if (problems.length > 0) {
  console.error(
    [
      'The secrets and data volumes of this installation do not match each other:',
      ...problems.map((line) => `  ${line},`),
    ]
      .join('\n')
      .concat('\n  or delete all data and start over: docker compose down --volumes'),
  )
  process.exit(1)
}

const keys = await keysOfHolders(
  at(KEY_FILE),
  (holder) => at(`${STORE}/${fileOfKey(holder)}`),
  (path, content) => writeSecret(path, INIT, content),
)

/** Returns the name of the file with a caller's key, such as `operator_key`. */
function fileOfKey(holder: KeyHolder): string {
  return `${holder.replaceAll('-', '_')}_key`
}
const keyOf = (holder: KeyHolder) => ({ [fileOfKey(holder)]: keys[holder] })

// The container `real-provider` has written settings for another provider, so they are kept.
const provider = readSecret(at(`${STORE}/discovery_url`))
if (provider === null || provider === SANDBOX_DISCOVERY_URL) {
  const settings = {
    discovery_url: SANDBOX_DISCOVERY_URL,
    accounting_url: new URL(SANDBOX_DISCOVERY_URL).origin,
    client_id: 'integration-host',
    client_secret: sandbox,
    webhook_verifier_tokens: sandboxVerifierToken,
    redirect: process.env['SANDBOX_REDIRECT'] ?? 'http://127.0.0.1:7217/callback',
  }
  for (const [name, content] of Object.entries(settings))
    writeSecret(at(`${STORE}/${name}`), INIT, content)
}

// A real provider without a verifier token is allowed. webhook-receiver then rejects every notification.
if (readSecret(at(`${STORE}/webhook_verifier_tokens`)) === null)
  writeSecret(at(`${STORE}/webhook_verifier_tokens`), INIT, password.make())

// A line of the console's users file contains a password hash with a random salt. So the line is created only once,
// together with the password.
const usersFile = at(`${STORE}/console_users`)
const consoleUsers =
  (isNewConsole ? null : readSecret(usersFile)) ??
  (await userLine('operator', 'operator', consolePassword))
writeSecret(usersFile, INIT, consoleUsers)

const ofProvider = (name: string): Readonly<Record<string, string>> => ({
  [name]: readSecret(at(`${STORE}/${name}`)) ?? '',
})
/**
 * The key with which the services call one another. It has every scope except `act-for`. No other container gets this
 * key.
 */
const serviceKeyFile = { service_api_key: serviceKey }
const redisUrl = (name: RedisAccountName) => ({
  redis_url: `redis://${name}:${redisPasswords[name]}@redis:6379`,
})
const amqpUrl = (name: BrokerAccountName) => ({
  amqp_url: `amqp://${name}:${brokerPasswords[name]}@rabbitmq:5672`,
})
const databaseUrl = {
  database_url: `postgres://integration:${postgres}@postgres:5432/integration`,
}
/** The files in the volume `<service>-secrets` of each service. */
const files: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'token-service': {
    ...serviceKeyFile,
    ...redisUrl('token-service'),
    ...amqpUrl('token-service'),
    credential_keys: credentialKeys,
    ...ofProvider('discovery_url'),
    ...ofProvider('client_id'),
    ...ofProvider('client_secret'),
    ...ofProvider('redirect'),
    ...ofProvider('accounting_url'),
  },
  'accounting-gateway': {
    ...serviceKeyFile,
    ...redisUrl('accounting-gateway'),
    ...amqpUrl('accounting-gateway'),
    ...ofProvider('accounting_url'),
  },
  coordinator: { ...serviceKeyFile, ...databaseUrl, ...amqpUrl('coordinator') },
  'demo-api': keyOf('demo-api'),
  'webhook-receiver': {
    ...amqpUrl('webhook-receiver'),
    ...ofProvider('webhook_verifier_tokens'),
  },
  console: { ...keyOf('console'), console_password: consolePassword, users: consoleUsers },
  'sandbox-provider': {
    sandbox_client_secret: sandbox,
    sandbox_verifier_token: sandboxVerifierToken,
  },
  // `doctor` compares the existing queues with the declared ones, so it needs the coordinator's account at RabbitMQ.
  doctor: {
    ...keyOf('operator'),
    ...redisUrl('doctor'),
    ...databaseUrl,
    ...amqpUrl('coordinator'),
    ...ofProvider('discovery_url'),
  },
  // The command line calls the services with the key for operators. It also prints the key for applications on request.
  cli: { ...keyOf('operator'), ...keyOf('application') },
}
for (const [service, contents] of Object.entries(files)) {
  const volume = `${service}-secrets`
  for (const name of readdirSync(at(volume)))
    if (!(name in contents)) rmSync(at(`${volume}/${name}`))
  for (const [name, content] of Object.entries(contents))
    writeSecret(at(`${volume}/${name}`), SERVICES, content)
}

// Before release 0.2, token-service and the gateway shared one account at each backend. These files contained its
// password.
for (const name of ['redis_url', 'amqp_url', 'database_url'])
  rmSync(at(`${STORE}/${name}`), { force: true })
rmSync(at('redis-secrets/password'), { force: true })
for (const name of readdirSync(at(STORE))) {
  lchownSync(at(`${STORE}/${name}`), INIT, INIT)
  chmodSync(at(`${STORE}/${name}`), 0o400)
}
writeSecret(at('redis-secrets/redis.conf'), BACKENDS, redisConf())
writeSecret(at('rabbitmq-secrets/definitions.json'), BACKENDS, brokerDefinitions())

for (const [volume, uid] of Object.entries(owners)) give(at(volume), uid)
chmodSync(at(KEY_FILE), 0o600)

/**
 * Makes `uid` the owner of a path and of everything below it. If the official images start as root, they do the same
 * with their data folders.
 */
function give(path: string, uid: number): void {
  const entry = lstatSync(path)
  if (entry.uid !== uid) lchownSync(path, uid, uid)
  if (entry.isDirectory()) for (const name of readdirSync(path)) give(join(path, name), uid)
}

function redisConf(): string {
  return [
    // A lost write may be a lost refresh token. So Redis flushes every write to disk before it replies, and never
    // evicts a key.
    'appendonly yes',
    'appendfsync always',
    'maxmemory-policy noeviction',
    // This limit is below the memory limit of the container, so that Redis rejects a write instead of being killed
    // for lack of memory.
    'maxmemory 384mb',
    'dir /data',
    // Redis replays its append-only file as the user `default`. Redis would skip transactions that this user is not
    // permitted to run, and would report this only in its log (redis/redis#14541). Therefore the user has every
    // permission, but is disabled for clients.
    'user default off ~* &* +@all',
    ...Object.entries(redisPasswords).map(([name, secret]) =>
      redisUser(name as RedisAccountName, secret),
    ),
    '',
  ].join('\n')
}

function brokerDefinitions(): string {
  const names = Object.keys(brokerPasswords) as BrokerAccountName[]
  const none = { configure: '^$', write: '^$', read: '^$' }
  const everything = { configure: '.*', write: '.*', read: '.*' }
  const user = (name: string, secret: string | null, tags: readonly string[] = []) => ({
    name,
    // A user without a password hash cannot log in.
    password_hash: secret === null ? '' : brokerHash(secret),
    hashing_algorithm: 'rabbit_password_hashing_sha256',
    tags,
  })
  // All services shared the account `integration` before release 0.2. An import of definitions cannot delete a user, so
  // this account is disabled instead.
  const isShared = readSecret(at('rabbitmq-secrets/password')) !== null
  return JSON.stringify(
    {
      users: [
        ...names.map((name) => user(name, brokerPasswords[name])),
        user('console', brokerConsole, ['administrator']),
        ...(isShared ? [user('integration', null)] : []),
      ],
      vhosts: [{ name: '/' }],
      permissions: [
        ...names.map((name) => ({ user: name, vhost: '/', ...brokerPermissions(name) })),
        { user: 'console', vhost: '/', ...everything },
        ...(isShared ? [{ user: 'integration', vhost: '/', ...none }] : []),
      ],
      // The recommended RabbitMQ policies. Operators who run their own broker import the same file.
      ...JSON.parse(readFileSync(join(import.meta.dirname, '../deploy/definitions.json'), 'utf8')),
    },
    null,
    2,
  )
}

/**
 * Returns RabbitMQ's salted password hash: the base64 of the salt followed by the SHA-256 of salt and password. The
 * salt is derived from the password, so the file changes only if the password changes.
 */
function brokerHash(secret: string): string {
  const sha256 = (...parts: readonly (string | Buffer)[]): Buffer =>
    parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest()
  const salt = sha256('salt', secret).subarray(0, 4)
  return Buffer.concat([salt, sha256(salt, secret)]).toString('base64')
}
