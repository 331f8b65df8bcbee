// The compose stack, really run: `npm run test:compose`, some minutes. It needs Docker with Compose, and takes a project
// name, ports and volumes of its own, which it removes afterwards. Each step is printed with its time.
import { tellStory } from '../host/src/story.ts'
import {
  databaseGone,
  passwordGone,
  portTaken,
  shortSecret,
  wrongOwners,
} from '../tests/compose/bad-input.ts'
import { expect, until } from '../tests/compose/check.ts'
import { isConfined } from '../tests/compose/confinement.ts'
import { deadLettersSurviveReading } from '../tests/compose/dead-letters.ts'
import {
  balancesRequests,
  followsReplicas,
  passesLimitsOn,
  respondsWithoutReplica,
  retriesRefusedConnections,
} from '../tests/compose/ingress.ts'
import { type Load, startLoad } from '../tests/compose/load.ts'
import { realProvider, sandboxKept, settingsMissing } from '../tests/compose/real-provider.ts'
import { ONE_SHOTS, Stack, words } from '../tests/compose/stack.ts'

const DEADLINE_MINUTES = 15
const SCALE = ['coordinator=3', 'token-service=2', 'accounting-gateway=2']
/** Far from those of the story. */
const FIRST_LOAD_NUMBER = 100_000

const interrupted = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => interrupted.abort(new Error(`stopped by ${signal}`)))
const outOfTime = AbortSignal.timeout(DEADLINE_MINUTES * 60_000)
const ending = AbortSignal.any([interrupted.signal, outOfTime])
const stack = await Stack.create(ending)

const startedAt = performance.now()
const secondsSince = (moment: number): string => ((performance.now() - moment) / 1_000).toFixed(1)
let steps = 0

/** Runs a step and prints it with its time, and with what it returns. */
async function step<Result>(title: string, run: () => Promise<Result>): Promise<Result> {
  const begun = performance.now()
  const tell = (sign: string, more = ''): void =>
    console.log(`${sign} ${secondsSince(begun).padStart(6)} s  ${title}${more}`)
  try {
    const result = await Promise.race([run(), aborted(ending)])
    tell('✓', typeof result === 'string' ? `: ${result}` : '')
    steps += 1
    return result
  } catch (error) {
    tell('✗')
    throw error
  }
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    const leave = (): void => reject(signal.reason as Error)
    if (signal.aborted) leave()
    else signal.addEventListener('abort', leave, { once: true })
  })

/** Brings up what is down, and waits until all of it, or that service, is healthy. */
function up(service?: string): Promise<string> {
  const scales = SCALE.filter((scale) => scale.startsWith(service ?? ''))
  return stack.compose([
    ...words('up --wait --no-recreate'),
    ...scales.flatMap((scale) => ['--scale', scale]),
    ...(service === undefined ? [] : ['--no-deps', service]),
  ])
}

if (!(await stack.engineAnswers())) {
  console.error('No Docker engine with Compose answers: start one, or set DOCKER_HOST.')
  process.exit(1)
}
try {
  await everything()
  console.log(`\n${steps} steps, ${(Number(secondsSince(startedAt)) / 60).toFixed(1)} minutes`)
} catch (error) {
  console.error(`\n${error instanceof Error ? error.message : String(error)}`)
  if (!interrupted.signal.aborted) console.error(await stack.logs())
  process.exitCode = 1
} finally {
  await stack.remove()
}
// Requests of the load may still wait for an answer that will not come.
process.exit()

async function everything(): Promise<void> {
  await step('builds the image', async () => {
    await stack.compose(['build', '--quiet'])
  })
  await step(
    'comes up healthy, with three coordinators, two token-services and two gateways',
    async () => {
      await up()
    },
  )
  const at = await stack.installation()
  await step(
    'gives no container more rights than it needs, nor a secret that can be inspected',
    () => isConfined(stack),
  )
  const realm = await step("tells the demo's story over the published ports", async () => {
    const lines: string[] = []
    const story = await tellStory(at, { stage() {}, line: (line) => void lines.push(line) })
    const csv = await stack.read('coordinator', `/data/OrderCSV/Order_${story.number}.0.csv`)
    expect(csv.startsWith('Order,CreatedAt,Status\n'), `the CSV file holds ${csv}`)
    return story.realm
  })
  await step('answers at the RabbitMQ console', async () => {
    const password = await stack.read('rabbitmq', '/secrets/rabbitmq/console_password')
    const overview = (user: string) =>
      fetch(`${stack.at('RABBITMQ_CONSOLE_PORT')}/api/overview`, {
        headers: { Authorization: `Basic ${Buffer.from(user).toString('base64')}` },
      })
    expect((await overview(`console:${password}`)).ok, 'the user console is refused')
    expect((await overview('guest:guest')).status === 401, 'the user guest is let in')
  })
  await step(
    'keeps a dead letter that is read and returned more often than the default limit',
    async () =>
      deadLettersSurviveReading(
        stack,
        await stack.read('rabbitmq', '/secrets/rabbitmq/console_password'),
      ),
  )
  await step('streams events through the ingress', async () => {
    const events = await fetch(`${at.coordinator}/events`, {
      headers: { Authorization: `Bearer ${at.serviceKey}` },
      signal: AbortSignal.any([ending, AbortSignal.timeout(30_000)]),
    })
    expect((await fetch(`${at.demoApi}/queue?number=events`)).ok, 'the order was not accepted')
    expect(await says(events, '"Completed"'), 'the stream ended early')
  })
  await step('balances the requests of one connection over the replicas', () =>
    balancesRequests(stack),
  )
  await step('sends requests to a new replica, and none to a removed one', () =>
    followsReplicas(stack),
  )
  await step('tries a request at another replica when one refuses the connection', () =>
    retriesRefusedConnections(stack),
  )
  await step('responds with 503 while a service has no replica', () =>
    respondsWithoutReplica(stack),
  )
  await step("leaves the services' own limits and rejections visible", () => passesLimitsOn(at))

  const load = startLoad(at, realm, FIRST_LOAD_NUMBER)
  const services = (await stack.compose(['config', '--services']))
    .split('\n')
    .filter(Boolean)
    .toSorted()
  for (const service of services.filter((name) => !ONE_SHOTS.includes(name)))
    await step(`is restarted under load: ${service}`, () => progress(load, () => restart(service)))
  for (const service of ['coordinator', 'token-service', 'accounting-gateway'])
    await step(`goes on without the replica that was killed: ${service}`, () =>
      progress(load, async () => {
        const [replica = ''] = await stack.containers(service)
        await stack.docker(['kill', replica])
      }),
    )
  await step('has lost nothing', () => nothingLost(load))
  await step('is found in order by doctor', async () => {
    await up()
    const { code: verdict, text } = await doctor()
    expect(verdict === 0, text)
    return text.trimEnd().split('\n').at(-1) ?? ''
  })

  await step('says which port is taken, and takes another', () => portTaken(stack))
  await stack.compose(['down'])
  await step('mends whom its volumes belong to', () => wrongOwners(stack))
  await step('refuses a secret that is too short', () => shortSecret(stack))
  await step('refuses the real provider where companies are at the sandbox', () =>
    sandboxKept(stack),
  )
  await step('refuses a database whose password is gone', () => passwordGone(stack))
  await step('goes on with its secrets where the database is gone', () => databaseGone(stack))
  await stack.compose(['down', '--volumes'])
  await step('says what the real provider needs', () => settingsMissing(stack))
  await step('uses the real provider that .env names', () => realProvider(stack))
}

async function restart(service: string): Promise<void> {
  await stack.compose(['restart', service])
  await up(service)
}

/** Does something to the stack and sees that orders are still taken and companies still read afterwards. */
async function progress(load: Load, act: () => Promise<void>): Promise<string> {
  await act()
  const { good } = load.reads
  const taken = load.taken.length
  await until(
    'orders are taken and companies read',
    async () => load.reads.good > good && load.taken.length > taken,
  )
  return `${load.taken.length} orders, ${load.reads.good} reads, ${load.reads.bad} reads failed so far`
}

async function nothingLost(load: Load): Promise<string> {
  await load.stop()
  const { coordinator, serviceKey } = await stack.installation()
  const integrity = async () => {
    const answer = await fetch(`${coordinator}/integrity`, {
      headers: { Authorization: `Bearer ${serviceKey}` },
    })
    return (await answer.json()) as { ok: boolean; headers: Record<string, number> }
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
  const lost = load.taken.filter((number) => !files.has(`Order_${number}.0.csv`))
  expect(lost.length === 0, `orders without a file: ${lost.join(', ')}`)
  return `${load.taken.length} orders completed, ${load.reads.good} reads`
}

function doctor() {
  return stack.tryCompose(
    words(`run --rm --no-deps -T
      -e REDIS_URL_FILE=/secrets/redis_url -e DISCOVERY_URL_FILE=/secrets/discovery_url
      -e TOKEN_SERVICE_URL=http://token-service:7217 -e COORDINATOR_URL=http://coordinator:7219
      coordinator node packages/cli/src/main.ts doctor`),
  )
}

/** Whether a streamed answer says `text` before it ends. */
async function says(answer: Response, text: string): Promise<boolean> {
  let said = ''
  for await (const chunk of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    said += chunk
    if (said.includes(text)) return true
  }
  return false
}
