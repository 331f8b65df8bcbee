// Measures the lists of token-service with 1,000,000 stored realms in a separate Redis: the duration of one page for
// every filter. Prints a table.
import { setTimeout as delay } from 'node:timers/promises'
import { parseKeyRing } from '@integration-host/shared/secrets/envelope'
import { Secret } from '@integration-host/shared/secrets/secret'
import { copyFirstRecord, nameOf, type Variation } from './support/copy-records.ts'
import { startCustody } from './support/custody.ts'
import { startPrivateRedis } from './support/private-redis.ts'
import { quantile } from './support/statistics.ts'

const REALMS = Number(process.env['REALMS'] ?? 1_000_000)
const LIMIT = 100
/**
 * The number of pages that are measured at the beginning of the sorted names, for each filter. The same number of pages
 * is measured in the middle of the sorted names.
 */
const PAGES = 20
const DAY_SECONDS = 86_400
const AT = '2026-11-23T00:00:00.000Z'
const NEEDLE = 'rumpelstiltskin'

await using opened = new AsyncDisposableStack()
const { url, redis } = opened.use(await startPrivateRedis({ appendOnly: false }))
const custody = opened.use(await startCustody(url))
const { system } = custody
await custody.sandbox('PUT', 'settings', { rotation: 'never', accessTokenSeconds: DAY_SECONDS })
const keys = parseKeyRing(new Secret(custody.credentialKeys))

custody.startTokenService()
await system.ready('token-service')
await custody.connect(nameOf(0).slice('ACC-'.length))
await system.service('token-service').stop('SIGTERM')
await copyFirstRecord(redis, keys, 1, REALMS, vary)
custody.startTokenService()
await system.ready('token-service')
const indexedFrom = performance.now()
while (!(await isIndexed())) await delay(500)
const indexedMs = performance.now() - indexedFrom

const middle = nameOf(REALMS / 2)
const filters = [
  '',
  'state=active',
  'state=must_reconnect',
  'state=failing,expiring',
  'class=provider_unavailable',
  'tag=plan:gold',
  'tag=region:7',
  'tag=plan:gold&state=must_reconnect&tag=region:7',
  'q=acc-9341453000',
  `q=${nameOf(REALMS / 2 + 7).slice('ACC-'.length)}`,
  'q=company',
  'q=company&state=must_reconnect',
  `q=${NEEDLE}`,
  'q=no+such+label',
  'state=expiring&class=invalid_grant',
]
const rows: Record<string, Record<string, string | number>> = {}
for (const filter of filters) rows[filter || '(none)'] = await measure(filter)
const summaries: number[] = []
for (let n = 0; n < PAGES; n += 1) summaries.push((await timed('/credentials/summary')).ms)
rows['summary'] = row(summaries, '')
console.table(rows)
console.log(`The index of states was verified in ${Math.round(indexedMs / 1_000)} s.`)

/**
 * Returns the state and the labels of realm number `n`. Of a hundred companies, one must be reconnected, ten have
 * failing refreshes, and one has a grant that expires soon. All companies have a label, and most have tags.
 */
function vary(n: number, name: string): Variation {
  const label = n === REALMS - 1 ? `The ${NEEDLE} Company` : `Company ${n} of Example & Söhne`
  const tags = { ...(n % 2 === 0 && { plan: 'gold' }), region: String(n % 1_000) }
  const text = JSON.stringify({ label, tags })
  const place = { name, field: 'LabelsSeal', version: 1 }
  const seal = keys.sealWithLabels('', place, text)
  const share = n % 100
  const code = share === 0 ? 'invalid_grant' : share <= 10 ? 'provider_unavailable' : null
  const state = share === 0 ? 'must_reconnect' : code !== null ? 'failing' : 'expiring'
  const isListed = code !== null || share === 11
  const sets = isListed ? [`state:${state}`, ...(code === null ? [] : [`class:${code}`])] : []
  const fault = JSON.stringify({ Code: code, Message: 'bench', At: AT, Attempts: 1 })
  return {
    fields: {
      Labels: text,
      LabelsSeal: seal,
      ...(isListed && { Listed: sets.join(' ') }),
      ...(code !== null && { Status: 'faulted', Fault: fault }),
      ...(state === 'expiring' && isListed && { ExpiryNotice: '90' }),
    },
    members: [
      ...sets.map((set) => [`credentials:index:${set}`, name] as const),
      ...Object.entries(tags).map(
        ([key, value]) => [`credentials:index:tag:${key}:${value}`, name] as const,
      ),
      ['credentials:index:labels', `${name} ${label.toLowerCase()}`],
    ],
  }
}

async function isIndexed(): Promise<boolean> {
  const { status } = await system.call(`${system.url('token-service')}/credentials/summary`)
  return status === 200
}

async function timed(path: string) {
  const startedAt = performance.now()
  const response = await system.call(`${system.url('token-service')}${path}`)
  const body = (await response.json()) as {
    readonly items?: readonly unknown[]
    readonly next_cursor?: string | null
  }
  if (response.status !== 200) throw new Error(JSON.stringify(body))
  return { ms: performance.now() - startedAt, ...body }
}

/** Measures the pages of a filter from the beginning and from the middle of the names. */
async function measure(filter: string): Promise<Record<string, string | number>> {
  await timed(`/credentials?limit=${LIMIT}&${filter}`)
  const times: number[] = []
  let found = 0
  let isComplete = false
  for (const start of [null, middle]) {
    let cursor: string | null = start
    for (let page = 0; page < PAGES; page += 1) {
      const from = cursor === null ? '' : `&cursor=${cursor}`
      const {
        ms,
        items = [],
        next_cursor: next = null,
      } = await timed(`/credentials?limit=${LIMIT}&${filter}${from}`)
      times.push(ms)
      found += items.length
      cursor = next
      if (cursor === null) break
    }
    if (start === null) isComplete = cursor === null
  }
  const pages = times.length
  return row(times, `${found} in ${pages} pages${isComplete ? ', complete' : ''}`)
}

function row(times: readonly number[], found: string): Record<string, string | number> {
  return {
    found,
    'p50, ms': quantile(times, 0.5).toFixed(1),
    'p90, ms': quantile(times, 0.9).toFixed(1),
    'worst, ms': Math.max(...times).toFixed(1),
  }
}
