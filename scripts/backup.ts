// Saves the data that an installation cannot recreate, and proves that a saved copy can be restored. docs/backup.md
// describes the use.
//   node scripts/backup.ts save FOLDER     saves the data of DATABASE_URL and of REDIS_URL into a new folder
//   node scripts/backup.ts drill FOLDER    restores the saved data into a new database on DRILL_DATABASE_URL and into
//                                          a new redis-server, checks the content, and removes both
// Needs pg_dump, pg_restore, psql, redis-cli and, for the drill, redis-server on the PATH. No provider is called.
import { execFile, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { parsePostgresUrl, type PostgresAddress } from '../packages/postgres/src/address.ts'
import { AddressError } from '../packages/shared/src/process/server-list.ts'
import { type KeyRing, parseKeyRing } from '../packages/shared/src/secrets/envelope.ts'
import { parseRedisUrl } from '../packages/shared/src/redis/address.ts'
import { findPrimary } from '../packages/shared/src/redis/connector.ts'
import { Secret } from '../packages/shared/src/secrets/secret.ts'
import { tlsFiles } from '../packages/shared/src/tls/tls-files.ts'
import { isDecryptable } from '../services/token-service/src/credential/credential-record.ts'

const run = promisify(execFile)
const FILES = ['postgres.dump', 'redis.rdb'] as const
const MAX_OUTPUT = 1 << 30

/** Thrown if a backup cannot be made or used. The message states the reason in one line. */
class Unusable extends Error {
  override readonly name = 'Unusable'
}

/**
 * Returns connection settings as libpq's environment variables. They are not passed as arguments, because any user
 * of the machine can read the arguments of a program.
 */
function postgresAt(name: 'DATABASE_URL' | 'DRILL_DATABASE_URL'): NodeJS.ProcessEnv {
  const { servers, sslMode, files, ...address } = parsedPostgresUrl(name)
  const tls = {
    PGSSLROOTCERT: address.usesSystemRoots ? 'system' : files.DATABASE_CA_FILE,
    PGSSLCERT: files.DATABASE_CERT_FILE,
    PGSSLKEY: files.DATABASE_KEY_FILE,
    PGSSLMODE: sslMode ?? (files.DATABASE_CA_FILE === undefined ? undefined : 'verify-full'),
  }
  const set = Object.entries(tls).filter(([, value]) => value !== undefined)
  return {
    ...process.env,
    PGHOST: servers.map(({ host }) => host).join(','),
    PGPORT: servers.map(({ port }) => port).join(','),
    PGUSER: address.user || 'postgres',
    PGPASSWORD: address.password,
    PGDATABASE: address.database || 'postgres',
    ...(servers.length > 1 && address.needsWrites && { PGTARGETSESSIONATTRS: 'read-write' }),
    ...Object.fromEntries(set),
  }
}

const setting = (name: string): string => {
  const value = process.env[name]
  if (!value) throw new Unusable(`${name} is not set`)
  return value
}
const parsedPostgresUrl = (name: string): PostgresAddress => parsed(name, parsePostgresUrl)
function parsed<Address>(name: string, parse: (text: string) => Address): Address {
  try {
    return parse(setting(name))
  } catch (error) {
    if (error instanceof AddressError) throw new Unusable(`${name} ${error.message}`)
    throw error
  }
}
const digestOf = async (path: string): Promise<string> =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex')

/**
 * Returns redis-cli's options and environment for a server. The password is only in the environment, not in the
 * options.
 */
async function redisAt(name: 'REDIS_URL') {
  const address = parsed(name, parseRedisUrl)
  if (address.kind === 'servers' && address.servers.length > 1)
    throw new Unusable(`${name} must name a single server, or Sentinels`)
  const { host, port } =
    address.kind === 'servers'
      ? address.servers[0]
      : await findPrimary(address.sentinels, tlsFiles('REDIS', process.env))
  const optional = {
    '--user': address.username,
    '--cacert': process.env['REDIS_CA_FILE'],
    '--cert': process.env['REDIS_CERT_FILE'],
    '--key': process.env['REDIS_KEY_FILE'],
  }
  return {
    options: [
      '-h',
      host,
      '-p',
      String(port),
      ...(address.usesTls ? ['--tls'] : []),
      ...Object.entries(optional).flatMap(([option, value]) => (value ? [option, value] : [])),
    ],
    env: { ...process.env, REDISCLI_AUTH: address.password ?? '' },
  }
}

async function save(folder: string): Promise<void> {
  const database = postgresAt('DATABASE_URL')
  const redis = await redisAt('REDIS_URL')
  await mkdir(folder, { mode: 0o700 })
  const [dump, rdb] = FILES.map((file) => join(folder, file)) as [string, string]
  await run('pg_dump', ['--format=custom', `--file=${dump}`], { env: database })
  await run('redis-cli', [...redis.options, '--rdb', rdb], { env: redis.env })
  const digests = Object.fromEntries(
    await Promise.all(FILES.map(async (file) => [file, await digestOf(join(folder, file))])),
  ) as Readonly<Record<string, string>>
  // The manifest is written last, so a folder without a manifest shows that the backup was interrupted.
  const manifest = { format: 1, takenAt: new Date().toISOString(), sha256: digests }
  await writeFile(join(folder, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`, {
    mode: 0o600,
  })
  console.log(`saved ${FILES.join(' and ')} to ${folder}; CREDENTIAL_KEYS is not in the backup`)
}

async function drill(folder: string): Promise<void> {
  const keys = parseKeyRing(new Secret(setting('CREDENTIAL_KEYS')))
  const server = postgresAt('DRILL_DATABASE_URL')
  const text = await readFile(join(folder, 'manifest.json'), 'utf8').catch(() => {
    throw new Unusable('manifest.json is missing: the backup was interrupted')
  })
  const { takenAt, sha256 } = JSON.parse(text) as {
    readonly takenAt: string
    readonly sha256: Readonly<Record<string, string>>
  }
  for (const file of FILES) {
    const digest = await digestOf(join(folder, file)).catch(() => null)
    if (digest !== sha256[file]) throw new Unusable(`${file} was modified since it was saved`)
  }
  console.log(`checking the backup of ${takenAt}`)
  await drillPostgres(join(folder, 'postgres.dump'), server)
  await drillRedis(join(folder, 'redis.rdb'), keys)
  console.log('it can be restored')
}

const CONTRADICTIONS = `
  select count(*) from "Order_Header" h where "Status" = 'Completed' and not exists (
    select from "Order_Item" i where i."Process" = h."Process" and i."TransactionID" = h."TransactionID"
      and i."ReplayID" = h."ReplayID" and i."StepName" = h."StepName" and i."Status" = 'Completed')`

async function drillPostgres(dump: string, there: NodeJS.ProcessEnv): Promise<void> {
  const name = `restore_drill_${randomBytes(5).toString('hex')}`
  await run('psql', ['-qc', `create database ${name}`], { env: there })
  try {
    const env = { ...there, PGDATABASE: name }
    await run(
      'pg_restore',
      ['--exit-on-error', '--no-owner', '--no-privileges', `--dbname=${name}`, dump],
      { env },
    )
    const count = async (query: string): Promise<number> =>
      Number((await run('psql', ['-AtXqc', query], { env })).stdout)
    const runs = await count('select count(*) from "Order_Header"')
    const items = await count('select count(*) from "Order_Item"')
    const torn = await count(CONTRADICTIONS)
    if (torn > 0) throw new Unusable(`${torn} completed runs have no completed item`)
    console.log(`postgres: ${runs} runs with ${items} items`)
  } finally {
    await run('psql', ['-qc', `drop database ${name} with (force)`], { env: there })
  }
}

// A Lua script that returns each credential's name, followed by the fields and values of its record. The script blocks
// the Redis server while it runs. The restore drill is the only client of this server, so blocking it does no harm.
const ALL_CREDENTIALS = `
  local found = {}
  for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    found[#found + 1] = { name, redis.call('HGETALL', ARGV[1] .. name) }
  end
  return found`

async function drillRedis(rdb: string, keys: KeyRing): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'restore-drill-'))
  const socket = join(folder, 'redis.sock')
  await copyFile(rdb, join(folder, 'redis.rdb'))
  const server = spawn(
    'redis-server',
    [
      '--port',
      '0',
      '--unixsocket',
      socket,
      '--dir',
      folder,
      '--dbfilename',
      'redis.rdb',
      // With `appendonly yes`, Redis would ignore redis.rdb and start with an empty append-only file.
      '--appendonly',
      'no',
      '--save',
      '',
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const gone = once(server, 'exit')
  try {
    let isReady = false
    for await (const line of createInterface({ input: server.stdout })) {
      isReady = /ready to accept connections/i.test(line)
      if (isReady) break
    }
    if (!isReady) throw new Unusable('redis-server cannot load redis.rdb')
    server.stdout.resume()
    const prefix = process.env['REDIS_KEY_PREFIX'] ?? ''
    const { stdout } = await run(
      'redis-cli',
      ['-s', socket, '--json', 'EVAL', ALL_CREDENTIALS, '1', `${prefix}credentials:names`, prefix],
      { maxBuffer: MAX_OUTPUT },
    )
    const records = JSON.parse(stdout) as readonly StoredRecord[]
    const closed = records.filter((record) => !opens(keys, record)).map(([name]) => name)
    if (closed.length > 0)
      throw new Unusable(
        `${closed.length} of ${records.length} credentials cannot be decrypted with CREDENTIAL_KEYS, ${closed[0]} first`,
      )
    console.log(
      `redis: ${records.length} credentials, all of them can be decrypted with CREDENTIAL_KEYS`,
    )
  } finally {
    server.kill()
    await gone
    await rm(folder, { recursive: true })
  }
}

/** The name of a credential, and its record as a flat list in which each field is followed by its value. */
type StoredRecord = readonly [name: string, flat: readonly string[]]

/** Returns true if the record belongs to the credential `name`, and the keys can decrypt all secrets in the record. */
function opens(keys: KeyRing, [name, flat]: StoredRecord): boolean {
  const fields = Object.fromEntries(
    flat.flatMap((field, at) => (at % 2 === 0 ? [[field, flat[at + 1] ?? '']] : [])),
  )
  return isDecryptable(keys, name, fields)
}

const [command, folder, ...rest] = process.argv.slice(2)
const commands: Readonly<Record<string, (folder: string) => Promise<void>>> = { save, drill }
const work = commands[command ?? '']
if (work === undefined || folder === undefined || rest.length > 0) {
  console.error('Usage: node scripts/backup.ts save|drill FOLDER')
  process.exit(2)
}
try {
  await work(folder)
} catch (error) {
  // If a program failed, the message contains its arguments and its standard error. No argument is a secret, so the
  // message is safe to print.
  console.error(error instanceof Error ? `${command} failed: ${error.message.trim()}` : error)
  process.exitCode = 1
}
