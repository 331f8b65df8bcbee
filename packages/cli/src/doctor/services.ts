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
import { addressOf, type ServiceAddress } from '../settings.ts'
import { counted } from '../terminal.ts'
import { clientOf, NoData, orReason, type Reader } from './query.ts'
import { reached, unreachable } from './reach.ts'
import { firstOf, resultsOf } from './results.ts'
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
  { name, url }: ServiceAddress,
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
  return resultsOf(
    reached(host),
    isReady && ok('ready', 'yes'),
    waiting.map(([dependency, { reason = 'not connected yet', since }]) => {
      const known = Object.hasOwn(needsPerson, dependency) ? needsPerson[dependency] : undefined
      return known === undefined
        ? (isReady ? warning : problem)(
            isReady ? 'optional' : 'ready',
            `waits for ${dependency} since ${since}: ${reason}`,
            remedyFor('DependencyDown'),
          )
        : problem(dependency, `since ${since}: ${reason}`, known)
    }),
    dependencies.flatMap(([dependency, { status, notes = [] }]) =>
      // For a dependency that is down, the reason is already reported above, and the notes would only repeat this
      // reason.
      status === 'up' ? notes.map((note) => noteOf(dependency, note)) : [],
    ),
    clock !== null && checkClock(clock),
  )
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
 * the coordinator has runs of these processes. @throws {NoData}
 */
export const readProcesses = (reader: Reader): Promise<ProcessList> =>
  reader.get('/processes', Processes)

/**
 * Checks the coordinator's processes, its database and its runs.
 *
 * @param list what {@link readProcesses} has returned
 * @param now milliseconds since the epoch
 */
export async function checkCoordinator(
  reader: Reader,
  { items, not_loaded: notLoaded }: ProcessList,
  now: number,
): Promise<readonly CheckResult[]> {
  const orphaned = notLoaded.filter(({ Unfinished }) => Unfinished > 0)
  const paused = items.filter(({ Paused }) => Paused).map(({ Process }) => Process)
  const [integrity, runs] = await Promise.all([
    orReason(checkIntegrity(reader, { areOrphansNamed: orphaned.length > 0 })),
    orReason(examineRuns(reader, now)),
  ])
  return resultsOf(
    ok('processes', items.map(({ Process }) => Process).join(', ')),
    paused.length > 0 &&
      warning(
        'paused',
        paused.join(', '),
        remedyFor('ProcessPaused', 'integration-host processes resume NAME'),
      ),
    orphaned.map(({ Process, Unfinished }) =>
      problem(
        'not loaded',
        `${Process}: ${counted(Unfinished, 'unfinished run')} of this process, which is not loaded`,
        remedyFor(
          'BooksOutOfBalance',
          `Load it again, or cancel them: integration-host transactions list --process ${Process}`,
        ),
      ),
    ),
    integrity,
    runs,
  )
}

async function checkIntegrity(
  reader: Reader,
  { areOrphansNamed }: { readonly areOrphansNamed: boolean },
): Promise<CheckResult[]> {
  const { violations, deadLetters } = await reader.get('/integrity', Integrity)
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
export async function examineKeyRing(reader: Reader): Promise<readonly CheckResult[]> {
  let checked = 0
  const refused: string[] = []
  const decryption = (): CheckResult | null =>
    refused.length === 0
      ? null
      : problem(
          'key ring',
          `does not decrypt ${refused.length}: ${firstOf(refused, 3)}`,
          'Add the key with which they were encrypted to CREDENTIAL_KEYS again, or reconnect these companies.',
        )
  try {
    for (let cursor: string | null = ''; cursor !== null;) {
      const search: string = cursor === '' ? '' : `?cursor=${encodeURIComponent(cursor)}`
      const page: KeyCheckPage = await reader.get(`/key-check${search}`, KeyCheckPage)
      checked += page.Checked
      refused.push(...page.Refused)
      cursor = page.next_cursor
    }
  } catch (error) {
    if (!(error instanceof NoData)) throw error
    if (checked === 0) return [error.result]
    const found = `only ${checked} credentials were decrypted in time`
    return resultsOf(decryption(), skipped('key ring', found, 'Use a longer --timeout.'))
  }
  return [decryption() ?? ok('key ring', `decrypts all ${checked} credentials`)]
}
