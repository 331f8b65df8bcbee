/**
 * Calls every route that needs no key, of every service, a thousand times, and compares what the backends and the heaps
 * hold before and after. The routes come from the OpenAPI documents, so a new route is tested without a change here.
 */
import {
  CLIENT_ID,
  CLIENT_SECRET,
  startTestProvider,
} from '@integration-host/shared/test-support/openid-provider'
import { eventually } from '@integration-host/shared/test-support/eventually'
import { freePort } from '@integration-host/shared/test-support/free-ports'
import {
  type StartedProcess,
  startProcess,
} from '@integration-host/shared/test-support/start-process'
import { userLine } from '@integration-host/shared/access/user-line'
import { postJson } from '@integration-host/shared/test-support/post-json'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectCompany } from '../clients/user-actions.ts'
import { backend, serviceNames, startSystem, type System } from '../system.ts'
import { type Door, doorsOf, type KnownValues } from './doors.ts'
import { sendAll } from './send.ts'
import { type Stored, storedBy } from './stored.ts'

const REALM = '4620816365001'
/** The number of calls of each door, and of the calls before them that fill caches and let V8 compile the code. */
const CALLS = 1_000
const WARM_UP_CALLS = 150
/** The number of calls, without a key, of each route that needs one. */
const KEYED_CALLS = 20
/** The specification wants the orders of these routes of the demo to be queued without a key. */
const EXCEPT = ['demo-api /queue', 'demo-api /replay']
/** A large file that all services send in the same way. One service is enough. */
const SCRIPT = '/docs/reference.js'

/**
 * What may be added in all, however many calls there are: the audit entry and the new token of the refresh that a
 * disconnect hint causes, once a minute.
 */
const MAX_ADDED = { bytes: 8_000, other: 5 }
/**
 * The growth of the heap of a service for which its doors are measured one by one, in bytes: for all doors together, and
 * what V8 needs in addition for the code of each.
 */
const SUSPECT_HEAP = { all: 256_000, perDoor: 8_000 }
/**
 * A thousand records of a request need more bytes than this in every round. V8's code and what a service does meanwhile need
 * less in one of the rounds.
 */
const MAX_HEAP_BYTES = 200_000
const HEAP_ROUNDS = 4
/** Warnings and errors. Each request may have one line at the level `info`, which operators can turn off. */
const MAX_LOG_LINES = 100

const systemNames = [...serviceNames, 'webhook-receiver'] as const
type Name = (typeof systemNames)[number] | 'console'
interface Tested extends Pick<StartedProcess, 'output' | 'signal' | 'waitForOutput'> {
  readonly url: string
  readonly doors: readonly Door[]
  probes: number
}

let closing: AsyncDisposableStack
let system: System
const services = new Map<Name, Tested>()

async function startAll(): Promise<void> {
  closing = new AsyncDisposableStack()
  system = closing.use(await startSystem([]))
  const provider = closing.use(await startTestProvider())
  const settings = {
    NODE_OPTIONS: `--import=${new URL('./heap-probe.ts', import.meta.url).href}`,
    LOG_LEVEL: 'warn',
  }
  for (const name of systemNames) system.start(name, settings)
  await system.ready(...systemNames)
  expect((await connectCompany(system, REALM)).status).toBe(302)
  const users = join(system.dataDir, 'users')
  await writeFile(users, `${await userLine('ada', 'operator', 'a long password')}\n`)
  const port = await freePort()
  const console = closing.use(
    startProcess(['services/console/src/main.ts'], {
      env: {
        ...settings,
        PORT: String(port),
        SIGN_IN: 'link,password,oidc',
        USERS_FILE: users,
        SERVICE_API_KEY: system.serviceKey,
        OIDC_ISSUER: provider.issuer,
        OIDC_CLIENT_ID: CLIENT_ID,
        OIDC_CLIENT_SECRET: CLIENT_SECRET,
        OIDC_OPERATORS: 'ada@example.com',
        REDIS_URL: backend('TEST_REDIS_URL'),
        REDIS_KEY_PREFIX: system.redisKeyPrefix,
        TOKEN_SERVICE_URL: system.url('token-service'),
        GATEWAY_URL: system.url('accounting-gateway'),
        COORDINATOR_URL: system.url('coordinator'),
      },
    }),
  )
  const consoleUrl = `http://127.0.0.1:${port}`
  await eventually(async () => expect((await fetch(`${consoleUrl}/health/ready`)).ok).toBe(true))
  const known = await knownValues(system.url('token-service'))
  const flow = await signInFlow(consoleUrl, provider.issuer)
  for (const name of systemNames) {
    const url = system.url(name)
    services.set(name, {
      ...system.service(name),
      url,
      doors: await doorsOf(url, known),
      probes: 0,
    })
  }
  services.set('console', {
    ...console,
    url: consoleUrl,
    doors: await doorsOf(consoleUrl, { ...known, ...flow }),
    probes: 0,
  })
}

/** What a client without a key may know: a connected company, and a connect link with a label, which this browser has used. */
async function knownValues(tokenServiceUrl: string): Promise<KnownValues> {
  const created = await system.call(
    `${tokenServiceUrl}/connect-links`,
    postJson({ label: 'x'.repeat(100), tags: { note: 'x'.repeat(100) } }),
  )
  const { id, url } = (await created.json()) as { id: string; url: string }
  return {
    realm: [REALM],
    realmId: [REALM],
    name: [`ACC-${REALM}`],
    ticket: [new URL(url).pathname.split('/').at(-1) ?? ''],
    id: [id],
    'cookie:authorization': ['b'.repeat(43)],
  }
}

/** A sign-in that a client without a key has begun at the console, with a code that the provider has not issued. */
async function signInFlow(url: string, issuer: string): Promise<KnownValues> {
  const { headers } = await fetch(`${url}/sign-in/oidc`, { redirect: 'manual' })
  const state = new URL(headers.get('Location') ?? '').searchParams.get('state') ?? ''
  const [cookie = ''] = headers.getSetCookie()
  const [, name = '', value = ''] = /^([^=]+)=([^;]+)/.exec(cookie) ?? []
  return { state: [state], code: ['made-up'], iss: [issuer], [`cookie:${name}`]: [value] }
}

function requests(door: Door, count: number, from: number) {
  return Array.from({ length: count }, (_, index) => door.request(from + index))
}

async function heapOf(service: Tested): Promise<number> {
  service.probes += 1
  const line = new RegExp(`^heap ${service.probes} (\\d+)$`, 'm')
  service.signal('SIGUSR2')
  return Number((await service.waitForOutput(line))[1])
}

/** Returns the stored values when two readings in a row are equal. */
async function settled(): Promise<Stored> {
  let last = await storedBy(system)
  for (;;) {
    const next = await storedBy(system)
    if (JSON.stringify(next) === JSON.stringify(last)) return next
    last = next
  }
}

/** Returns the values that have grown, with their growth. */
const grown = (before: Stored, after: Stored): Stored =>
  Object.fromEntries(
    Object.entries(after)
      .map(([name, value]) => [name, value - (before[name] ?? 0)] as const)
      .filter(([, growth]) => growth > 0),
  )

/** Returns whether each of several rounds of calls of a door leaves something on the heap. */
async function leaks(service: Tested, door: Door): Promise<boolean> {
  for (let round = 1; round <= HEAP_ROUNDS; round += 1) {
    const before = await heapOf(service)
    await sendAll(service.url, requests(door, CALLS, round * 10_000))
    if ((await heapOf(service)) - before <= MAX_HEAP_BYTES) return false
  }
  return true
}

/** Tests the routes of these services that need no key. */
export function keylessDoors(names: readonly Name[]): void {
  beforeAll(startAll)
  afterAll(() => closing?.disposeAsync())

  describe.each(names)('the routes of %s that need no key', (name) => {
    it('a thousand calls of each route leave nothing in Redis, PostgreSQL, RabbitMQ and the heap, and no line each in the log', async () => {
      const service = services.get(name)
      if (service === undefined) throw new Error(`${name} was not started`)
      const isExcepted = ({ path }: Door): boolean =>
        EXCEPT.includes(`${name} ${path}`) || (path === SCRIPT && name !== 'accounting-gateway')
      const open = service.doors.filter((door) => !door.needsKey && !isExcepted(door))
      expect(open.length).toBeGreaterThan(6)
      const keyed = service.doors.filter(({ needsKey }) => needsKey)
      for (const door of open) await sendAll(service.url, requests(door, WARM_UP_CALLS, 1))
      for (const door of keyed) await sendAll(service.url, requests(door, KEYED_CALLS, 1))

      const before = await settled()
      const heapBefore = await heapOf(service)
      const logBefore = service.output().length
      for (const door of open) await sendAll(service.url, requests(door, CALLS, 1_000))
      for (const door of keyed) await sendAll(service.url, requests(door, KEYED_CALLS, 1_000))
      const log = service.output().slice(logBefore)
      const heapGrowth = (await heapOf(service)) - heapBefore
      const added = grown(before, await settled())

      const sum = (isCounted: (what: string) => boolean): number =>
        Object.entries(added).reduce((all, [what, count]) => all + (isCounted(what) ? count : 0), 0)
      const isByte = (what: string): boolean => what.startsWith('bytes')
      const explained = JSON.stringify(added).slice(0, 2_000)
      expect(sum(isByte), explained).toBeLessThanOrEqual(MAX_ADDED.bytes)
      expect(
        sum((what) => !isByte(what)),
        explained,
      ).toBeLessThanOrEqual(MAX_ADDED.other)
      expect(log.split('\n').length, log.slice(0, 2_000)).toBeLessThanOrEqual(MAX_LOG_LINES)
      // The growth of all doors together is mostly that of V8. Only if it is large, each door is measured.
      const leaking =
        heapGrowth <= SUSPECT_HEAP.all + open.length * SUSPECT_HEAP.perDoor
          ? []
          : await Array.fromAsync(
              open,
              async (door) => [`${door.method} ${door.path}`, await leaks(service, door)] as const,
            )
      expect(leaking.filter(([, isLeaking]) => isLeaking)).toEqual([])
    }, 600_000)
  })
}
