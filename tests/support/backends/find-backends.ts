/**
 * Finds the PostgreSQL, Redis and RabbitMQ servers for the integration tests, and passes their URLs to the test
 * workers in `TEST_DATABASE_URL`, `TEST_REDIS_URL` and `TEST_AMQP_URL`. The first of these levels that applies is
 * used:
 *
 * 1. `environment`: all three variables are set. If one of these servers does not respond, the run fails.
 * 2. `docker`: a Docker engine responds. The servers run in temporary containers.
 * 3. `local`: servers respond on their standard localhost ports.
 * 4. `private`: server programs are installed. They run on free ports, in a temporary folder. On Debian and Ubuntu,
 * root installs missing programs first.
 *
 * Level 4 starts the servers that level 3 did not find. `TEST_BACKENDS=docker` (or the name of another level)
 * allows only that level. If no level applies, the run fails with one message; no test is skipped.
 */
import { randomBytes } from 'node:crypto'
import postgres from 'postgres'
import {
  backendKinds,
  labels,
  type Backend,
  type BackendKind,
  type StartedBackends,
} from './backend.ts'
import { startContainers } from './containers.ts'
import { startPrivateServers } from './private-servers.ts'
import { probe, reasonOf } from './probes.ts'

type Level = (typeof levels)[number]

const levels = ['environment', 'docker', 'local', 'private'] as const

const variables: Record<BackendKind, string> = {
  postgres: 'TEST_DATABASE_URL',
  redis: 'TEST_REDIS_URL',
  rabbitmq: 'TEST_AMQP_URL',
}

const localUrls: Record<BackendKind, readonly string[]> = {
  // Most guides for the official PostgreSQL image use the password `postgres`.
  postgres: [
    'postgresql://postgres@127.0.0.1:5432/postgres',
    'postgresql://postgres:postgres@127.0.0.1:5432/postgres',
  ],
  redis: ['redis://127.0.0.1:6379'],
  rabbitmq: ['amqp://guest:guest@127.0.0.1:5672'],
}

/**
 * The global setup of Vitest, which runs before the first worker starts. The returned function runs after the last
 * worker has ended, and drops the databases that the workers have kept for further tests.
 */
export default async function setup(): Promise<() => Promise<void>> {
  const { backends, stop } = await findBackends(process.env).catch(exitWithMessage)
  const origins = backendKinds.map((kind) => {
    const backend = backends[kind]
    if (backend === undefined)
      throw new Error(`no ${labels[kind]} was found and no error was thrown`)
    process.env[variables[kind]] = backend.url
    return `${labels[kind]} ${backend.origin}`
  })
  console.log(`Test backends: ${origins.join(', ')}`)
  // Each project calls this function.
  if (process.env['TEST_RUN'] !== undefined) return stop
  const run = randomBytes(3).toString('hex')
  process.env['TEST_RUN'] = run
  return async () => {
    try {
      await dropDatabases(backends.postgres?.url ?? '', run)
    } finally {
      await stop()
    }
  }
}

/** Drops the databases of a test run, whose names begin with `t` and the name of the run. */
async function dropDatabases(url: string, run: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    const databases = await sql<{ name: string }[]>`
      select datname as name from pg_database where starts_with(datname, ${`t${run}`})`
    for (const { name } of databases) await sql`drop database if exists ${sql(name)} with (force)`
  } finally {
    await sql.end()
  }
}

/**
 * Finds the servers.
 *
 * @throws {Error} whose message names the missing servers and the remedy
 */
export async function findBackends(env: NodeJS.ProcessEnv): Promise<StartedBackends> {
  const only = forcedLevel(env)
  const allows = (level: Level): boolean => only === undefined || only === level
  const failures: string[] = []

  if (allows('environment')) {
    const unset = backendKinds.filter((kind) => !env[variables[kind]])
    if (unset.length === 0) return fromEnvironment(env)
    if (unset.length < backendKinds.length || only === 'environment') {
      failures.push(`environment: not set: ${unset.map((kind) => variables[kind]).join(', ')}`)
    }
  }

  if (allows('docker')) {
    try {
      return await startContainers()
    } catch (error) {
      failures.push(`Docker: ${reasonOf(error)}`)
    }
  }

  const local = allows('local') ? await findLocalServers(failures) : {}
  const missing = backendKinds.filter((kind) => local[kind] === undefined)
  if (missing.length === 0) return { backends: local, stop: async () => {} }

  if (allows('private')) {
    try {
      const { backends, stop } = await startPrivateServers(missing)
      return { backends: { ...local, ...backends }, stop }
    } catch (error) {
      failures.push(`starting it here: ${reasonOf(error)}`)
    }
  }
  throw new Error(whatToDo(missing, failures))
}

/**
 * Prints the error message and ends the run. If the setup rejected, vitest would print the message with a stack
 * trace, after "No test files found".
 */
function exitWithMessage(error: unknown): never {
  console.error(`\n${error instanceof Error ? error.message : String(error)}\n`)
  process.exit(1)
}

function forcedLevel(env: NodeJS.ProcessEnv): Level | undefined {
  const wanted = env['TEST_BACKENDS']
  if (!wanted) return undefined
  const level = levels.find((name) => name === wanted)
  if (level === undefined) {
    throw new Error(`TEST_BACKENDS must be one of ${levels.join(', ')}, or not set`)
  }
  return level
}

async function fromEnvironment(env: NodeJS.ProcessEnv): Promise<StartedBackends> {
  const backends: Partial<Record<BackendKind, Backend>> = {}
  for (const kind of backendKinds) {
    const name = variables[kind]
    const url = env[name] ?? ''
    try {
      await probe(kind, url)
    } catch (error) {
      throw new Error(`${name} is set, but its server cannot be used: ${reasonOf(error)}`, {
        cause: error,
      })
    }
    backends[kind] = { url, origin: `from ${name}` }
  }
  return { backends, stop: async () => {} }
}

async function findLocalServers(
  failures: string[],
): Promise<Partial<Record<BackendKind, Backend>>> {
  const backends: Partial<Record<BackendKind, Backend>> = {}
  for (const kind of backendKinds) {
    const reasons = new Set<string>()
    for (const url of localUrls[kind]) {
      const { host } = new URL(url)
      try {
        await probe(kind, url)
        backends[kind] = { url, origin: `on ${host}` }
        break
      } catch (error) {
        reasons.add(`${labels[kind]} on ${host}: ${reasonOf(error)}`)
      }
    }
    if (backends[kind] === undefined) failures.push(...reasons)
  }
  return backends
}

function whatToDo(missing: readonly BackendKind[], failures: readonly string[]): string {
  const names = missing.map((kind) => labels[kind]).join(', ')
  return [
    `The integration tests need PostgreSQL, Redis and RabbitMQ (3.10 or newer). Not found: ${names}.`,
    ...failures.map((failure) => `  - ${failure}`),
    'Any one of these helps:',
    '  - start Docker',
    '  - start the servers on their standard localhost ports (PostgreSQL: user postgres without a password)',
    '  - install them, and the tests start their own: apt-get install postgresql redis-server rabbitmq-server,',
    '    or brew install postgresql redis rabbitmq',
    `  - set ${Object.values(variables).join(', ')} to servers that tests may write to`,
    'The unit tests need none of them: npm test -- --project unit',
  ].join('\n')
}
