// Makes the secrets of a compose stack, once: what is there already is never overwritten. Prints names, no values.
import { createHash, randomBytes } from 'node:crypto'
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const ROOT = process.argv[2] ?? '/secrets'
/** User ids inside the images: our own, and the one that the official postgres, redis and rabbitmq images share. */
const SERVICES = 1000
const BACKENDS = 999

/** Writes a file that only `uid` may read, unless it exists; returns what it holds. */
function keep(name: string, uid: number, make: () => string): string {
  const path = join(ROOT, name)
  if (existsSync(path)) {
    console.log(`kept    ${name}`)
    return readFileSync(path, 'utf8')
  }
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 })
  const content = make()
  // Whole or not at all: a half-written secret would be kept for ever.
  writeFileSync(`${path}.new`, content, { mode: 0o400 })
  chownSync(`${path}.new`, uid, uid)
  renameSync(`${path}.new`, path)
  console.log(`created ${name}`)
  return content
}

const random = (): string => randomBytes(32).toString('base64url')

/** RabbitMQ's salted hash: base64 of salt and SHA-256 of salt and password. */
function rabbitHash(password: string): string {
  const salt = randomBytes(4)
  const digest = createHash('sha256').update(salt).update(password).digest()
  return Buffer.concat([salt, digest]).toString('base64')
}

keep('services/service_api_key', SERVICES, random)
keep('services/credential_keys', SERVICES, () => `k1:${randomBytes(32).toString('base64')}`)
keep('services/client_secret', SERVICES, random)

const postgresPassword = keep('postgres/password', BACKENDS, random)
keep(
  'services/database_url',
  SERVICES,
  () => `postgres://integration:${postgresPassword}@postgres:5432/integration`,
)

const redisPassword = keep('redis/password', BACKENDS, random)
keep('services/redis_url', SERVICES, () => `redis://integration:${redisPassword}@redis:6379`)
keep('redis/redis.conf', BACKENDS, () =>
  [
    // A lost write can be a lost refresh token: every write reaches the disk before it is answered, nothing is evicted.
    'appendonly yes',
    'appendfsync always',
    'maxmemory-policy noeviction',
    'dir /data',
    'user default off',
    `user integration on #${createHash('sha256').update(redisPassword).digest('hex')} ~* &* +@all -@dangerous +info +config|get +client +keys`,
    '',
  ].join('\n'),
)

const rabbitPassword = keep('rabbitmq/password', BACKENDS, random)
keep('services/amqp_url', SERVICES, () => `amqp://integration:${rabbitPassword}@rabbitmq:5672`)
const consolePassword = keep('rabbitmq/console_password', BACKENDS, random)
keep('rabbitmq/definitions.json', BACKENDS, () => {
  const everything = { configure: '.*', write: '.*', read: '.*' }
  return JSON.stringify(
    {
      users: [
        {
          name: 'integration',
          password_hash: rabbitHash(rabbitPassword),
          hashing_algorithm: 'rabbit_password_hashing_sha256',
          tags: [],
        },
        {
          name: 'console',
          password_hash: rabbitHash(consolePassword),
          hashing_algorithm: 'rabbit_password_hashing_sha256',
          tags: ['administrator'],
        },
      ],
      vhosts: [{ name: '/' }],
      permissions: [
        { user: 'integration', vhost: '/', ...everything },
        { user: 'console', vhost: '/', ...everything },
      ],
      // Those of deploy/definitions.json, which are for everyone's broker.
      ...JSON.parse(readFileSync(join(import.meta.dirname, '../deploy/definitions.json'), 'utf8')),
    },
    null,
    2,
  )
})
