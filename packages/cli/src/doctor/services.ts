import type { Reply } from '@integration-host/client/service'
import { remedyFor } from '@integration-host/shared/conditions'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
  checkClock,
  httpClock,
} from '@integration-host/shared/observability/checks'
import { KeyCheckPage } from '@integration-host/shared/contracts/custody'
import { parseJson } from '@integration-host/shared/json'
import { z } from 'zod'
import { addressOf } from '../settings.ts'
import { counted } from '../terminal.ts'
import { clientOf, query, type QueryResult, type Service } from './query.ts'
import { reached, unreachable } from './reach.ts'
import { examineRuns } from './runs.ts'

const Readiness = z.object({
  dependencies: z.record(
    z.string(),
    z.object({
      status: z.string(),
      reason: z.string().optional(),
      since: z.string(),
      notes: z.array(z.string()).optional(),
    }),
  ),
})
const Processes = z.object({
  items: z.array(
    z.object({
      Process: z.string(),
      Steps: z.array(z.string()),
      Paused: z.boolean(),
      // A coordinator of an earlier version does not send all of these.
      On: z.array(z.string()).default([]),
      Watches: z.array(z.string()).default([]),
      Events: z.array(z.string()).default([]),
      BuiltIn: z.boolean().default(false),
    }),
  ),
  not_loaded: z.array(z.object({ Process: z.string(), Unfinished: z.int() })).default([]),
})
export type ProcessList = z.output<typeof Processes>
const Integrity = z.object({
  violations: z.record(z.string(), z.number()),
  deadLetters: z.record(z.string(), z.number().nullable()),
})

/** Checks whether a service is ready, and reports the dependencies that an unready service waits for. */
export async function examineReadiness(
  { name, url }: Service,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const { host } = new URL(url)
  const requestedAt = Date.now()
  let response: Reply
  try {
    response = await clientOf({ url, key: null }).send('/health/ready', { signal })
  } catch (error) {
    return [unreachable(host, addressOf[name], error)]
  }
  const clock = httpClock(response, requestedAt, Date.now())
  const isReady = response.status === 200
  // A service that is not ready responds with 503, and with the same body.
  const readiness = Readiness.safeParse(parseJson(response.text))
  if (!readiness.success)
    return [
      problem(
        'connection',
        `${host}: status ${response.status}, which is not a response of ${name}`,
        `Set the right address (${addressOf[name]})`,
      ),
    ]
  const dependencies = Object.entries(readiness.data.dependencies)
  const waiting = dependencies.filter(([, { status }]) => status !== 'up')
  return [
    reached(host),
    ...(isReady ? [ok('ready', 'yes')] : []),
    ...waiting.map(([dependency, { reason = 'not connected yet', since }]) => {
      const known = Object.hasOwn(needsPerson, dependency) ? needsPerson[dependency] : undefined
      return known === undefined
        ? (isReady ? warning : problem)(
            isReady ? 'optional' : 'ready',
            `waits for ${dependency} since ${since}: ${reason}`,
            remedyFor('DependencyDown'),
          )
        : problem(dependency, `since ${since}: ${reason}`, known)
    }),
    ...dependencies.flatMap(([dependency, { status, notes = [] }]) =>
      // For a dependency that is down, the reason is already reported above, and the notes would only repeat this
      // reason.
      status === 'up' ? notes.map((note) => noteOf(dependency, note)) : [],
    ),
    ...(clock === null ? [] : [checkClock(clock)]),
  ]
}

/** The remedy for each dependency that only an operator can restore. */
const needsPerson: Readonly<Record<string, string>> = {
  'provider-client': remedyFor('ProviderClientRefused'),
  'data-folder':
    'Free space on the disk of DATA_DIR (docs/runbook.md#the-disk-of-a-coordinator-is-full).',
  'credential-keys':
    'Append the missing key to CREDENTIAL_KEYS (docs/runbook.md#lost-or-changed-keys).',
  'service-keys-file': remedyFor('ServiceKeysFileInvalid'),
  processes: remedyFor('ProcessFilesFailed'),
  'webhooks-file': remedyFor('WebhooksFileInvalid'),
}

/** Returns the check result for a note. The result needs no separate remedy, because the note says what to do. */
const noteOf = (dependency: string, note: string): CheckResult => ({
  check: dependency,
  verdict: 'warning',
  found: note,
  remedy: null,
})

/**
 * Requests the processes of the coordinator. The response also lists processes that the coordinator has not loaded, if
 * the coordinator has runs of these processes.
 */
export const readProcesses = (
  service: Service,
  signal: AbortSignal,
): Promise<QueryResult<ProcessList>> => query(service, '/processes', Processes, signal)

/**
 * Checks the coordinator's processes, its database and its runs.
 *
 * @param list what {@link readProcesses} has returned
 * @param now milliseconds since the epoch
 */
export async function checkCoordinator(
  service: Service,
  list: QueryResult<ProcessList>,
  now: number,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  if ('result' in list) return [list.result]
  const [integrity, runs] = await Promise.all([
    query(service, '/integrity', Integrity, signal),
    examineRuns(service, now, signal),
  ])
  const { items, not_loaded: notLoaded } = list.data
  const orphaned = notLoaded.filter(({ Unfinished }) => Unfinished > 0)
  const paused = items.filter(({ Paused }) => Paused).map(({ Process }) => Process)
  return [
    ok('processes', items.map(({ Process }) => Process).join(', ')),
    ...(paused.length > 0
      ? [
          warning(
            'paused',
            paused.join(', '),
            remedyFor('ProcessPaused', 'integration-host processes resume NAME'),
          ),
        ]
      : []),
    ...orphaned.map(({ Process, Unfinished }) =>
      problem(
        'not loaded',
        `${Process}: ${counted(Unfinished, 'unfinished run')} of this process, which is not loaded`,
        remedyFor(
          'BooksOutOfBalance',
          `Load it again, or cancel them: integration-host transactions list --process ${Process}`,
        ),
      ),
    ),
    ...('data' in integrity
      ? checkIntegrity(integrity.data, { areOrphansNamed: orphaned.length > 0 })
      : [integrity.result]),
    ...runs,
  ]
}

function checkIntegrity(
  { violations, deadLetters }: z.output<typeof Integrity>,
  { areOrphansNamed }: { readonly areOrphansNamed: boolean },
): CheckResult[] {
  const off = Object.entries(violations).filter(
    ([kind, count]) => count > 0 && !(areOrphansNamed && kind === 'unknownProcess'),
  )
  const dead = Object.entries(deadLetters).filter(([, count]) => (count ?? 0) > 0)
  return [
    off.length === 0
      ? ok('integrity', 'rows, items and queues agree')
      : problem(
          'integrity',
          off.map(([kind, count]) => `${kind}: ${count}`).join(', '),
          remedyFor('BooksOutOfBalance'),
        ),
    ...dead.map(([process, count]) =>
      problem(
        'dead letters',
        `${process}: ${count}`,
        remedyFor('DeadMessages', `integration-host dead-letters list --process ${process}`),
      ),
    ),
  ]
}

/**
 * Makes token-service decrypt all stored secrets, and reports the secrets that no configured key decrypts. The check
 * stops at the deadline.
 */
export async function examineKeyRing(
  service: Service,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  let checked = 0
  let refused = 0
  const firstRefused: string[] = []
  for (let cursor: string | null = ''; cursor !== null;) {
    const search: string = cursor === '' ? '' : `?cursor=${encodeURIComponent(cursor)}`
    const page: Awaited<ReturnType<typeof query<KeyCheckPage>>> = await query(
      service,
      `/key-check${search}`,
      KeyCheckPage,
      signal,
    )
    if (!('data' in page)) {
      if (checked === 0) return [page.result]
      return [...decryptionProblem(refused, firstRefused), unfinished(checked)]
    }
    checked += page.data.Checked
    refused += page.data.Refused.length
    firstRefused.push(...page.data.Refused.slice(0, 3 - firstRefused.length))
    cursor = page.data.next_cursor
  }
  return refused > 0
    ? decryptionProblem(refused, firstRefused)
    : [ok('key ring', `decrypts all ${checked} credentials`)]
}

const decryptionProblem = (count: number, first: readonly string[]): CheckResult[] =>
  count === 0
    ? []
    : [
        problem(
          'key ring',
          `does not decrypt ${count}: ${first.join(', ')}${count > first.length ? ', …' : ''}`,
          'Add the key with which they were encrypted to CREDENTIAL_KEYS again, or reconnect these companies.',
        ),
      ]

const unfinished = (checked: number): CheckResult =>
  skipped(
    'key ring',
    `only ${checked} credentials were decrypted in time`,
    'Use a longer --timeout.',
  )
