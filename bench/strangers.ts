// Simulates clients without a service key, which send requests to every endpoint that needs no key. Measures whether
// the memory of the services stays constant, and how much slower gateway calls and token refreshes become for clients
// with a key. Prints two tables and a verdict; if the verdict is negative, the exit code is 1.
//   npm run bench -- strangers [--count 10000] [--seconds 60] [--every 20]     each client sends a request every 20 s
import { fileURLToPath } from 'node:url'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { startProcess } from '@integration-host/shared/test-support/start-process'
import setupBackends from '@integration-host/tests/backends'
import { startSystem } from '@integration-host/tests/system'
import { connectCompany } from '@integration-host/tests/user-actions'
import type { CrowdCounts, CrowdSettings } from './strangers/crowd.ts'
import { type LoadResult, steady, type Target } from './support/load.ts'
import { residentMb } from './support/process-usage.ts'
import { median } from './support/statistics.ts'

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '10000' },
    seconds: { type: 'string', default: '60' },
    every: { type: 'string', default: '20' },
  },
})
const [count, seconds, everySeconds] = [values.count, values.seconds, values.every].map(Number) as [
  number,
  number,
  number,
]
const REALMS = 20
const CALLS_PER_SECOND = 50
const REFRESHES_PER_SECOND = 5
const WARM_UP_SECONDS = 5
/**
 * The limit for the p50 latency of clients with a key: it may rise by at most a fifth while the clients without a key
 * send requests.
 */
const MAX_SLOWDOWN = 1.2
/**
 * The limit for the memory. From the middle of the measurement to its end, the memory may grow by a tenth or by 16 MB,
 * whichever is more.
 */
const MAX_GROWTH = 1.1
const MAX_GROWTH_MB = 16

const services = ['token-service', 'accounting-gateway', 'coordinator', 'demo-api'] as const

await using opened = new AsyncDisposableStack()
opened.defer(await setupBackends())
const system = opened.use(await startSystem())
const realms = Array.from({ length: REALMS }, (_, n) => `93414539080${String(n).padStart(5, '0')}`)
for (const realm of realms) await (await connectCompany(system, realm)).body?.cancel()
const realmOf = (n: number): string => realms[n % REALMS] ?? ''

const headers = { Authorization: `Bearer ${system.serviceKey}` }
const users = {
  'gateway calls': {
    target: {
      origin: system.url('accounting-gateway'),
      method: 'GET',
      path: (n) =>
        `/v3/company/${realmOf(n)}/query?query=${encodeURIComponent('select * from CompanyInfo')}`,
      headers,
    },
    perSecond: CALLS_PER_SECOND,
  },
  refreshes: {
    target: {
      origin: system.url('token-service'),
      method: 'POST',
      path: (n) => `/credentials/ACC-${realmOf(n)}/refresh`,
      headers: { ...headers, 'Content-Type': 'application/json' },
      body: '{}',
    },
    perSecond: REFRESHES_PER_SECOND,
  },
} as const satisfies Record<string, { target: Target; perSecond: number }>
type UserLoad = keyof typeof users
const userLoads = Object.keys(users) as UserLoad[]

async function measure(duration: number): Promise<Readonly<Record<UserLoad, LoadResult>>> {
  const results = await Promise.all(
    userLoads.map(
      async (name) =>
        [
          name,
          await steady(users[name].target, { perSecond: users[name].perSecond, seconds: duration }),
        ] as const,
    ),
  )
  return Object.fromEntries(results) as Record<UserLoad, LoadResult>
}
const memory = (): readonly number[] =>
  services.map((service) => residentMb(system.service(service).pid))

await measure(WARM_UP_SECONDS)
const before = await measure(seconds / 2)
const memoryBefore = memory()

const settings: CrowdSettings = { count, everySeconds, requests: openEndpoints() }
const crowd = opened.use(
  startProcess([
    fileURLToPath(new URL('strangers/crowd.ts', import.meta.url)),
    JSON.stringify(settings),
  ]),
)
// The measurement begins after the first interval, when every client without a key has sent a request.
await delay(everySeconds * 1_000)
const samples: (readonly number[])[] = []
const sampling = setInterval(() => samples.push(memory()), 1_000)
opened.defer(() => clearInterval(sampling))
const during = await measure(seconds)
clearInterval(sampling)
const counts = JSON.parse(crowd.output().trim().split('\n').at(-1) ?? '{}') as CrowdCounts
await crowd.stop('SIGKILL')

const problems: string[] = []
console.log(
  `\n${count} clients without a key, each with one request every ${everySeconds} s; responses: ${JSON.stringify(counts)}`,
)
console.table(
  Object.fromEntries(
    userLoads.map((name) => {
      const slowdown = during[name].p50Ms / before[name].p50Ms
      if (slowdown > MAX_SLOWDOWN)
        problems.push(`the p50 of ${name} grew by the factor ${slowdown.toFixed(2)}`)
      return [
        name,
        {
          'p50 ms before': before[name].p50Ms.toFixed(1),
          'p50 ms with them': during[name].p50Ms.toFixed(1),
          factor: slowdown.toFixed(2),
          'p99 ms before': before[name].p99Ms.toFixed(1),
          'p99 ms with them': during[name].p99Ms.toFixed(1),
        },
      ]
    }),
  ),
)
console.table(
  Object.fromEntries(
    services.map((service, index) => {
      const all = samples.map((sample) => sample[index] ?? 0)
      const middle = median(all.slice(Math.floor(all.length / 3), Math.ceil((2 * all.length) / 3)))
      const end = median(all.slice(-5))
      if (end > Math.max(middle * MAX_GROWTH, middle + MAX_GROWTH_MB))
        problems.push(
          `the memory of ${service} grew from ${Math.round(middle)} to ${Math.round(end)} MB`,
        )
      return [
        service,
        {
          'RSS MB before': Math.round(memoryBefore[index] ?? 0),
          'in the middle': Math.round(middle),
          'at the end': Math.round(end),
        },
      ]
    }),
  ),
)
console.log(
  problems.length === 0
    ? 'Latency and memory stayed within the limits.'
    : `Limits were exceeded: ${problems.join('; ')}.`,
)
process.exitCode = problems.length === 0 ? 0 : 1

/**
 * Returns the requests that the clients send, all without a key. They cover every endpoint that needs no key and, for
 * each service that uses keys, one endpoint that needs a key.
 */
function openEndpoints(): CrowdSettings['requests'] {
  const common = ['/health/live', '/health/ready', '/metrics', '/openapi.json']
  const paths: Record<(typeof services)[number], readonly string[]> = {
    'token-service': [
      ...common,
      '/authorize',
      '/callback?code=made-up&state=made-up&realmId=1',
      '/credentials',
    ],
    'accounting-gateway': [...common, '/v3/company/1/query?query=x'],
    coordinator: [...common, '/processes'],
    'demo-api': [...common, '/order?order=1', '/report?order=1&created=2026-11-20T10:00:00Z'],
  }
  return services.flatMap((service) => {
    const { port } = new URL(system.url(service))
    return paths[service].map((path) => ({
      port: Number(port),
      bytes: `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`,
    }))
  })
}
