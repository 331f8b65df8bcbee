// `npm run test:compose`: builds the compose stack, runs the stack and tests it from outside. The run takes some
// minutes and needs Docker with Compose. The stack has its own project name, ports and volumes, which are removed
// afterwards. Each step is printed with its duration.
import { setTimeout as delay } from 'node:timers/promises'
import { tellStory } from '../host/src/story.ts'
import {
  deniesForeignData,
  firstReleaseVolumes,
  hasNoPrivateKey,
  holdsOwnSecretsOnly,
  ignoresSigusr1,
} from '../tests/compose/accounts.ts'
import {
  databaseGone,
  passwordGone,
  portTaken,
  shortSecret,
  wrongOwners,
} from '../tests/compose/bad-input.ts'
import { expect, until } from '../tests/compose/check.ts'
import { isConfined } from '../tests/compose/confinement.ts'
import { deadLettersAreStored } from '../tests/compose/dead-letters.ts'
import {
  balancesRequests,
  followsReplicas,
  passesLimitsOn,
  respondsWithoutReplica,
  retriesRefusedConnections,
} from '../tests/compose/ingress.ts'
import { keysAreBounded, operatorsMakeKeys, revokedEverywhere } from '../tests/compose/keys.ts'
import { type Load, startLoad } from '../tests/compose/load.ts'
import { realProvider, sandboxKept, settingsMissing } from '../tests/compose/real-provider.ts'
import { ONE_SHOTS, Stack, words } from '../tests/compose/stack.ts'
import { operatesConsole, signsInToConsole } from '../tests/compose/console.ts'
import { publishesNotification } from '../tests/compose/webhooks.ts'

const DEADLINE_MINUTES = 25
/** The time limit of a step, so that a step that hangs fails. The longest step took two minutes on a slow machine. */
const STEP_MINUTES = 5
const SCALE = ['coordinator=3', 'token-service=2', 'accounting-gateway=2']
/** The first order number of the load generator. The demo uses lower numbers. */
const FIRST_LOAD_NUMBER = 100_000

const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => interrupted.abort(new Error(`stopped by ${signal}`)))
const outOfTime = AbortSignal.timeout(DEADLINE_MINUTES * 60_000)
const ending = AbortSignal.any([interrupted.signal, outOfTime])
const stack = await Stack.create(ending)

const startedAt = performance.now()
const secondsSince = (moment: number): string => ((performance.now() - moment) / 1_000).toFixed(1)
let steps = 0

/** Runs a step and prints the step's title, duration and result. */
async function step<Result>(title: string, run: () => Promise<Result>): Promise<Result> {
  const begun = performance.now()
  const print = (sign: string, more = ''): void =>
    console.log(`${sign} ${secondsSince(begun).padStart(6)} s  ${title}${more}`)
  const limit = new AbortController()
  try {
    const result = await Promise.race([run(), aborted(ending), overdue(limit.signal)])
    print('✓', typeof result === 'string' ? `: ${result}` : '')
    steps += 1
    return result
  } catch (error) {
    print('✗')
    throw error
  } finally {
    limit.abort()
  }
}

/** Rejects when the time limit of a step has passed, unless the step has ended. */
async function overdue(ended: AbortSignal): Promise<never> {
  await delay(STEP_MINUTES * 60_000, null, { signal: ended })
  throw new Error(`the step did not end within ${STEP_MINUTES} minutes`)
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    const leave = (): void => reject(signal.reason as Error)
    if (signal.aborted) leave()
    else signal.addEventListener('abort', leave, { once: true })
  })

/**
 * Starts the containers of the stack, or only those of one service, unless they run already. Waits until they are
 * healthy.
 */
function up(service?: string): Promise<string> {
  const scales = SCALE.filter((scale) => scale.startsWith(service ?? ''))
  return stack.compose([
    ...words('up --wait --no-recreate'),
    ...scales.flatMap((scale) => ['--scale', scale]),
    ...(service === undefined ? [] : ['--no-deps', service]),
  ])
}

if (!(await stack.isEngineAvailable())) {
  console.error('No Docker engine with Compose responds: start one, or set DOCKER_HOST.')
  process.exit(1)
}
try {
  await everything()
  console.log(`\n${steps} steps, ${(Number(secondsSince(startedAt)) / 60).toFixed(1)} minutes`)
} catch (error) {
  if (!interrupted.signal.aborted) console.error(await stack.logs())
  console.error(`\n${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
} finally {
  await stack.remove()
}
// After a failed step, requests of the load generator may still be in flight and would keep the process alive.
process.exit()

async function everything(): Promise<void> {
  await step('builds the image', async () => {
    await stack.compose(['build', '--quiet'])
  })
  await step(
    'starts three coordinators, two token-services and two gateways, all healthy',
    async () => {
      await up()
    },
  )
  const at = await stack.installation()
  await step('runs every container without privileges, and `docker inspect` shows no secret', () =>
    isConfined(stack),
  )
  const { realm, number } = await step(
    "runs the demo's steps over the published ports",
    async () => {
      const lines: string[] = []
      const story = await tellStory(at, { stage() {}, line: (line) => void lines.push(line) })
      const csv = await stack.read('coordinator', `/data/OrderCSV/Order_${story.number}.0.csv`)
      expect(csv.startsWith('Order,CreatedAt,Status\n'), `the CSV file holds ${csv}`)
      return story
    },
  )
  await step("accepts only the user console on RabbitMQ's management page", async () => {
    const password = await stack.read('rabbitmq', '/secrets/rabbitmq/console_password')
    const overview = (user: string) =>
      fetch(`${stack.at('RABBITMQ_CONSOLE_PORT')}/api/overview`, {
        headers: { Authorization: `Basic ${Buffer.from(user).toString('base64')}` },
      })
    expect((await overview(`console:${password}`)).ok, 'the user console is rejected')
    expect((await overview('guest:guest')).status === 401, 'the user guest is accepted')
  })
  await step(
    'stores a message that cannot be processed, and lists and deletes it by the command line',
    () => deadLettersAreStored(stack),
  )
  await step('serves the web console to the person with the password of its volume', () =>
    signsInToConsole(stack),
  )
  await step('shows and replays a run on the pages of the console, in a browser', () =>
    operatesConsole(stack, number),
  )
  await step('gives each service its own secrets only', () => holdsOwnSecretsOnly(stack))
  await step('accepts the keys of applications and operators for their own tasks only', () =>
    keysAreBounded(stack, realm),
  )
  await step('makes keys by the command line, which uses the operator key', () =>
    operatorsMakeKeys(stack, realm),
  )
  await step('rejects a revoked key on every replica, without a restart', () =>
    revokedEverywhere(stack),
  )
  await step("denies the gateway's accounts access to the data of other services", () =>
    deniesForeignData(stack, realm),
  )
  await step('publishes an event for a signed notification that arrives through the ingress', () =>
    publishesNotification(stack, realm),
  )
  await step('does not open the inspector on SIGUSR1', () => ignoresSigusr1(stack))
  await step('the image contains no private key', () => hasNoPrivateKey(stack))
  await step('forwards server-sent events through the ingress', async () => {
    const events = await fetch(`${at.coordinator}/events`, {
      headers: { Authorization: `Bearer ${at.serviceKey}` },
      signal: AbortSignal.any([ending, AbortSignal.timeout(30_000)]),
    })
    expect((await fetch(`${at.demoApi}/queue?number=events`)).ok, 'the order was not accepted')
    expect(await streams(events, '"Completed"'), 'the stream ended early')
  })
  await step('balances the requests of one connection over the replicas', () =>
    balancesRequests(stack),
  )
  await step('sends requests to a new replica, and none to a removed one', () =>
    followsReplicas(stack),
  )
  await step('retries a request at another replica when a replica refuses the connection', () =>
    retriesRefusedConnections(stack),
  )
  await step('responds with 503 while a service has no replica', () =>
    respondsWithoutReplica(stack),
  )
  await step("forwards the services' own error responses through the ingress", () =>
    passesLimitsOn(at),
  )

  const load = startLoad(at, realm, FIRST_LOAD_NUMBER)
  const services = (await stack.compose(['config', '--services']))
    .split('\n')
    .filter(Boolean)
    .toSorted()
  for (const service of services.filter((name) => !ONE_SHOTS.includes(name)))
    await step(`continues after a restart under load: ${service}`, () =>
      progress(load, () => restart(service)),
    )
  for (const service of ['coordinator', 'token-service', 'accounting-gateway'])
    await step(`continues after a replica was killed: ${service}`, () =>
      progress(load, async () => {
        const [replica = ''] = await stack.containers(service)
        await stack.docker(['kill', replica])
      }),
    )
  await step('completes every accepted order', () => nothingLost(load))
  await step('doctor finds no problem in the stack', async () => {
    await up()
    const { code: verdict, text } = await doctor()
    expect(verdict === 0, text)
    return text.trimEnd().split('\n').at(-1) ?? ''
  })

  await step('reports a port that is in use, and starts on another one', () => portTaken(stack))
  await stack.compose(['down'])
  await step('corrects the owners of files in its volumes', () => wrongOwners(stack))
  await step('rejects a secret that is too short', () => shortSecret(stack))
  await step('rejects another provider while companies are connected at the sandbox provider', () =>
    sandboxKept(stack),
  )
  await step('rejects a database volume whose password is missing', () => passwordGone(stack))
  await step('starts with an empty database if only the database volume was deleted', () =>
    databaseGone(stack),
  )
  await stack.compose(['down', '--volumes'])
  await step('upgrades volumes of the first release', () => firstReleaseVolumes(stack))
  await stack.compose(['down', '--volumes'])
  await step('reports which settings of the real provider are missing', () =>
    settingsMissing(stack),
  )
  await step('uses the real provider named in .env', () => realProvider(stack))
}

async function restart(service: string): Promise<void> {
  await stack.compose(['restart', service])
  await up(service)
}

/**
 * Runs `act`, then waits until the load generator has another accepted order and another successful read of the
 * company.
 */
async function progress(load: Load, act: () => Promise<void>): Promise<string> {
  await act()
  const { good } = load.reads
  const accepted = load.accepted.length
  await until(
    'orders are accepted and reads succeed',
    async () => load.reads.good > good && load.accepted.length > accepted,
  )
  return `${load.accepted.length} orders, ${load.reads.good} reads, ${load.reads.bad} reads failed so far`
}

async function nothingLost(load: Load): Promise<string> {
  await load.stop()
  const { coordinator, serviceKey } = await stack.installation()
  const integrity = async () => {
    const response = await fetch(`${coordinator}/integrity`, {
      headers: { Authorization: `Bearer ${serviceKey}` },
    })
    return (await response.json()) as { ok: boolean; headers: Record<string, number> }
  }
  await until(
    'every order is completed',
    async () => {
      const { headers } = await integrity()
      return Object.entries(headers).every(
        ([status, count]) => status === 'Completed' || count === 0,
      )
    },
    120,
  )
  expect((await integrity()).ok, 'rows contradict each other: GET /integrity')
  const listing = await stack.compose(['exec', '-T', 'coordinator', 'ls', '/data/OrderCSV'])
  const files = new Set(listing.split('\n'))
  const lost = load.accepted.filter((number) => !files.has(`Order_${number}.0.csv`))
  expect(lost.length === 0, `orders without a file: ${lost.join(', ')}`)
  return `${load.accepted.length} orders completed, ${load.reads.good} reads`
}

function doctor() {
  return stack.tryCompose(words('run --rm --no-deps -T doctor'))
}

/**
 * Resolves with `true` as soon as a streamed response contains `text`, or with `false` if the stream ends without it.
 */
async function streams(response: Response, text: string): Promise<boolean> {
  let received = ''
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    received += chunk
    if (received.includes(text)) return true
  }
  return false
}
