import { setTimeout as delay } from 'node:timers/promises'
import {
  chooseProxy,
  forwardProxySettings,
} from '@integration-host/shared/http/forward-proxy/forward-proxy'
import { type CheckResult, problem, skipped } from '@integration-host/shared/observability/checks'
import { postgresUrl } from '@integration-host/postgres/address'
import {
  backendUrl,
  httpUrl,
  integer,
  parseConfig,
  secret,
} from '@integration-host/shared/process/config'
import { amqpUrl } from '@integration-host/shared/messaging/rabbitmq/address'
import { providerProfile } from '@integration-host/shared/provider-profile/profiles'
import { redisUrl } from '@integration-host/shared/redis/address'
import { tlsFiles, tlsSettings } from '@integration-host/shared/tls/tls-files'
import { z } from 'zod'
import { defineCommand, durationMsOf, flags, texts } from '../command.ts'
import { examineBroker } from '../doctor/broker.ts'
import { examineCredentials } from '../doctor/credentials.ts'
import { examinePostgres } from '../doctor/postgres.ts'
import { examineProvider, type ProviderClient } from '../doctor/provider.ts'
import { createReader, NoData, orNoData, orReason, type Reader } from '../doctor/query.ts'
import { isReached } from '../doctor/reach.ts'
import { examineRedis } from '../doctor/redis.ts'
import {
  checkCoordinator,
  examineKeyRing,
  examineReadiness,
  type ProcessList,
  readProcesses,
} from '../doctor/services.ts'
import { exitCodes, UsageError } from '../exit-code.ts'
import {
  addressOf,
  isEmbeddedHost,
  readServices,
  secretsOf,
  type CheckedService,
  type ServiceAddress,
  usable,
} from '../settings.ts'
import { type Colour, counted, notify, painter, plain, print, verdictTable } from '../terminal.ts'

const Settings = z.object({
  REDIS_URL: redisUrl().optional(),
  ...tlsSettings('REDIS'),
  REDIS_REPLICAS: integer(0, 9).optional(),
  DATABASE_URL: postgresUrl().optional(),
  ...tlsSettings('DATABASE'),
  AMQP_URL: amqpUrl().optional(),
  ...tlsSettings('AMQP'),
  AMQP_PREFIX: z.string().default(''),
  AMQP_MANAGEMENT_URL: backendUrl(/^https?$/, 'http://user:password@host:15672').optional(),
  DISCOVERY_URL: httpUrl().optional(),
  CLIENT_ID: z.string().optional(),
  CLIENT_SECRET: secret().optional(),
  REDIRECT: z.string().optional(),
  PROVIDER_PROFILE: providerProfile(),
  ...forwardProxySettings(),
})
type Settings = z.output<typeof Settings>

const subjects = [
  'redis',
  'postgres',
  'rabbitmq',
  'provider',
  'token-service',
  'accounting-gateway',
  'coordinator',
  'demo-api',
] as const
type Subject = (typeof subjects)[number]

const DEFAULT_SECONDS = 15
/** After the deadline a check has this time to return partial results and to close its connection. */
const GRACE_MS = 1_000

export const doctor = defineCommand({
  summary: 'check backends, provider and services, and print how to fix problems',
  usage: '[--only SUBJECT,…] [--timeout SECONDS] [--strict]',
  help: `Checks the installation: every backend (version, important settings, memory, migrations, queues and policies), the
clocks of all machines, the forward proxy, the provider, its token endpoint and the key pair, each service and its disk,
and whether the stored credentials can be decrypted. It also reports companies that must be connected again, cannot be refreshed or end
soon; runs that have failed in the last day, wait for a credential, are in doubt or belong to a process that is not
loaded; dead letters. doctor changes nothing. With --json each line is one check result.

  --only SUBJECT,…    check only these of ${subjects.join(', ')}
  --timeout SECONDS   the deadline of all checks together (default ${DEFAULT_SECONDS})
  --strict            exit with code 1 for warnings too

It reads the settings of the services: REDIS_URL, REDIS_REPLICAS, DATABASE_URL, AMQP_URL, AMQP_PREFIX, the files for TLS
such as REDIS_CA_FILE, DISCOVERY_URL, HTTPS_PROXY, HTTP_PROXY, NO_PROXY, CLIENT_ID, CLIENT_SECRET, TOKEN_SERVICE_URL,
GATEWAY_URL, COORDINATOR_URL, DEMO_API_URL, SERVICE_API_KEY, each also as …_FILE; and AMQP_MANAGEMENT_URL, the address of RabbitMQ's management API with
a user who has the tag monitoring. A check whose setting is missing is reported as skipped. If no address is set, doctor uses the default ports of the services.
If any address is set, the others must be set too, because another installation may listen at the default ports.

Exit code 0: nothing is wrong, or only warnings. 1: there are problems that an operator must fix.

Examples:
  integration-host doctor
  REDIS_URL_FILE=/run/secrets/redis_url integration-host doctor --only redis
  integration-host doctor --json | jq -r 'select(.Verdict == "problem") | .Subject + ": " + .Mend'`,
  options: { ...texts('only', 'timeout'), ...flags('strict') },
  async run({ values, terminal }) {
    if (values.url !== undefined)
      throw new UsageError('doctor checks several services: set their addresses (--help)')
    const wanted = subjectsOf(values.only)
    const timeoutMs = durationMsOf('--timeout', values.timeout, DEFAULT_SECONDS)
    const settings = usable(() => parseConfig(Settings, terminal.env))
    const services = readServices(terminal.env)
    const abortedAfter = (ms: number): AbortSignal =>
      AbortSignal.any([terminal.signal, AbortSignal.timeout(ms)])
    const signal = abortedAfter(timeoutMs)
    // Some checks need the response to an earlier request. The earlier request times out after half of the time limit,
    // so that the check has the other half.
    const halfway = abortedAfter(timeoutMs / 2)
    const isEmbedded = isEmbeddedHost(terminal.env)
    /** Returns the check of a backend. The check is skipped for an embedded host, which has no backends. */
    const ofBackend = <T>(
      value: T | undefined,
      variable: string,
      examine: (value: T) => Promise<readonly CheckResult[]>,
    ) =>
      value === undefined && isEmbedded
        ? async () => [{ ...skipped('connection', 'the embedded host has none', ''), remedy: null }]
        : given(value, variable, examine)
    let list: Promise<ProcessList | NoData> | null = null
    /** Requests the coordinator's processes. The checks of RabbitMQ and of the coordinator share one request. */
    const processesOf = (service: ServiceAddress): Promise<ProcessList | NoData> =>
      (list ??= orNoData(readProcesses(createReader(service, halfway))))
    const examineWith = (
      name: CheckedService,
      more: (
        reader: Reader,
        service: ServiceAddress,
      ) => Promise<readonly CheckResult[]> = async () => [],
    ) =>
      given(services[name] ?? undefined, addressOf[name], async (service) => {
        const results = await examineReadiness(service, signal)
        if (!isReached(results)) return results
        return [...results, ...(await more(createReader(service, signal), service))]
      })
    const examinations: Record<Subject, () => Promise<readonly CheckResult[]>> = {
      redis: ofBackend(settings.REDIS_URL, 'REDIS_URL', (url) =>
        examineRedis(url, tlsFiles('REDIS', settings), settings.REDIS_REPLICAS, signal),
      ),
      postgres: ofBackend(settings.DATABASE_URL, 'DATABASE_URL', (url) =>
        examinePostgres(url, settings, signal),
      ),
      rabbitmq: ofBackend(settings.AMQP_URL, 'AMQP_URL', async (url) => {
        // Each step of a process has a queue, so the check of the queues needs the processes.
        const processes = services.coordinator && (await processesOf(services.coordinator))
        return examineBroker(
          url,
          { ...settings, tls: tlsFiles('AMQP', settings) },
          processes === null || processes instanceof NoData ? null : processes.items,
          signal,
        )
      }),
      provider:
        settings.DISCOVERY_URL === undefined && isEmbedded
          ? async () => [skipped('connection', OF_HOST, CHECK_PROVIDER)]
          : given(settings.DISCOVERY_URL, 'DISCOVERY_URL', (url) =>
              examineProvider(url, clientOf(settings), signal),
            ),
      'token-service': examineWith('token-service', async (reader, service) => {
        const results = await Promise.all([
          examineKeyRing(reader),
          orReason(examineCredentials(createReader(service, halfway), reader)),
        ])
        return distinct(results.flat())
      }),
      'accounting-gateway': examineWith('accounting-gateway'),
      coordinator: examineWith('coordinator', async (reader, service) => {
        const processes = await processesOf(service)
        if (processes instanceof NoData) return [processes.result]
        return checkCoordinator(reader, processes, terminal.wallClock())
      }),
      'demo-api': examineWith('demo-api'),
    }

    const counts = { ok: 0, warning: 0, problem: 0, skipped: 0 }
    const started = wanted.map(
      (subject) => [subject, inTime(examinations[subject](), signal)] as const,
    )
    const found: (CheckResult & { readonly subject: Subject })[] = []
    for (const [subject, results] of started)
      for (const result of await results) found.push({ ...result, subject })
    terminal.signal.throwIfAborted()
    for (const { verdict } of found) counts[verdict] += 1
    if (values.json) {
      await print(terminal, ...found.map((result) => JSON.stringify(documentOf(result))))
    } else {
      // Subjects that were not checked are printed last, because the other results matter more.
      const isSkipped = ({ check, verdict }: CheckResult): boolean =>
        check === 'connection' && verdict === 'skipped'
      const shown = found.toSorted((a, b) => Number(isSkipped(a)) - Number(isSkipped(b)))
      const columns = {
        VERDICT: 'verdict',
        SUBJECT: 'subject',
        CHECK: 'check',
        FOUND: 'found',
      } as const
      const detailOf = ({ verdict, remedy }: CheckResult) => ({
        colour: colours[verdict],
        note: remedy,
      })
      await print(terminal, ...verdictTable(columns, shown, detailOf, painter(terminal)))
    }
    notify(terminal, summaryOf(counts))
    return counts.problem > 0 || (values.strict && counts.warning > 0)
      ? exitCodes.failed
      : exitCodes.ok
  },
})

/**
 * The embedded host of the command `dev` uses a sandbox as its provider. The embedded host of the command `start` reads
 * the provider settings of its project.
 */
const OF_HOST = 'the embedded host has its own provider settings'
const CHECK_PROVIDER =
  'Nothing with `integration-host dev`, whose provider is a sandbox. With `start`, set DISCOVERY_URL.'

const clientOf = (settings: Settings): ProviderClient => ({
  id: settings.CLIENT_ID,
  secrets: settings.CLIENT_SECRET && secretsOf(settings.CLIENT_SECRET),
  redirect: settings.REDIRECT,
  profile: settings.PROVIDER_PROFILE,
  proxyFor: chooseProxy(settings),
})

const colours: Readonly<Record<CheckResult['verdict'], Colour>> = {
  ok: 'green',
  warning: 'yellow',
  problem: 'red',
  skipped: 'dim',
}

const documentOf = ({
  subject,
  check,
  verdict,
  found,
  remedy,
}: CheckResult & { subject: Subject }) => ({
  Subject: subject,
  Check: check,
  Verdict: verdict,
  Found: found,
  Mend: remedy,
})

const summaryOf = (counts: Readonly<Record<CheckResult['verdict'], number>>): string =>
  [
    counts.problem === 0 && counts.warning === 0
      ? 'Nothing is wrong'
      : `${counted(counts.problem, 'problem')}, ${counted(counts.warning, 'warning')}`,
    ...(counts.skipped > 0 ? [`${counts.skipped} not checked`] : []),
  ].join(', ') + '.'

/** Parses the value of `--only`; all subjects if the option is not given. @throws {UsageError} a subject is unknown. */
function subjectsOf(only: string | undefined): readonly Subject[] {
  if (only === undefined) return subjects
  const names = only.split(',').map((name) => name.trim())
  const unknown = names.find((name) => !subjects.some((subject) => subject === name))
  if (unknown !== undefined)
    throw new UsageError(
      `--only: there is no '${plain(unknown)}'; there are: ${subjects.join(', ')}`,
    )
  return subjects.filter((subject) => names.includes(subject))
}

/**
 * Drops repeated check results. For example, every request has the same result if the service key is missing or
 * rejected.
 */
const distinct = (results: readonly CheckResult[]): CheckResult[] => [
  ...new Map(results.map((result) => [JSON.stringify(result), result])).values(),
]

/**
 * Returns the function that checks one backend or service. The check is skipped if the setting `variable` is missing.
 */
const given =
  <T>(
    value: T | undefined,
    variable: string,
    examine: (value: T) => Promise<readonly CheckResult[]>,
  ) =>
  (): Promise<readonly CheckResult[]> =>
    value === undefined
      ? Promise.resolve([skipped('connection', `${variable} is not set`, `Set ${variable}.`)])
      : examine(value)

/**
 * Resolves with the check results of `work`. If `work` has not ended shortly after the deadline, resolves with a
 * problem instead.
 */
async function inTime(
  work: Promise<readonly CheckResult[]>,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const done = new AbortController()
  const late = async (): Promise<readonly CheckResult[]> => {
    await new Promise((resolve) => {
      if (signal.aborted) resolve(null)
      signal.addEventListener('abort', resolve, { once: true })
    })
    await delay(GRACE_MS, null, { signal: done.signal }).catch(() => {})
    return [
      problem(
        'connection',
        'does not respond in time',
        'Check that it is running, or use a longer --timeout.',
      ),
    ]
  }
  try {
    return await Promise.race([work, late()])
  } finally {
    done.abort()
  }
}
