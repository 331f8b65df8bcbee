/**
 * Checks queues, their members, and policies by RabbitMQ's management HTTP API. This API reports policies, alarms, and
 * every argument of a queue, none of which AMQP reports.
 */
import { boundedText } from '@integration-host/shared/http/response-body'
import { parseJson, SERVICE_LIMITS } from '@integration-host/shared/json'
import {
  type CheckResult,
  ok,
  problem,
  skipped,
  warning,
  checkClock,
  httpClock,
} from '@integration-host/shared/observability/checks'
import { z } from 'zod'
import {
  DEFINITIONS,
  differences,
  shippedPolicies,
  type ShippedPolicy,
  type WantedQueue,
} from './broker-topology.ts'
import { counted } from '../terminal.ts'
import { driftProblem, summary } from './rabbitmq.ts'
import { resultsOf } from './results.ts'

const Settings = z.record(z.string(), z.unknown())
const Queues = z.array(
  z.object({
    name: z.string(),
    arguments: Settings,
    // The policy and the number of messages are absent until the broker has collected the first statistics of the
    // queue.
    policy: z.string().nullable().optional(),
    effective_policy_definition: z
      .union([Settings, z.array(z.never())])
      .nullable()
      .optional(),
    messages: z.number().optional(),
    // The nodes that have a copy of the queue, and those of them that run. Only quorum queues have these members.
    // RabbitMQ sends null as the leader of a queue without a leader.
    members: z.array(z.string()).readonly().nullish(),
    online: z.array(z.string()).readonly().nullish(),
    leader: z.string().nullish(),
  }),
)
type Queue = z.output<typeof Queues>[number]
const Nodes = z.array(
  z.object({
    name: z.string(),
    running: z.boolean().optional(),
    mem_alarm: z.boolean().optional(),
    disk_free_alarm: z.boolean().optional(),
  }),
)
type Node = z.output<typeof Nodes>[number]
const COLUMNS = 'name,arguments,policy,effective_policy_definition,messages,members,online,leader'

export interface Management {
  /** The address of the management API, without credentials. */
  readonly url: string
  readonly authorization: string
  readonly vhost: string
  readonly prefix: string
}

/**
 * Checks queues, policies and alarms. If the API is unavailable or rejects the user, returns the reason as `why`
 * instead.
 */
export async function examineManagement(
  { url, authorization, vhost, prefix }: Management,
  wanted: readonly WantedQueue[],
  signal: AbortSignal,
): Promise<{ readonly results: readonly CheckResult[] } | { readonly why: string }> {
  const get = (path: string): Promise<Response> =>
    fetch(`${url}/api/${path}`, {
      headers: { Authorization: authorization },
      redirect: 'manual',
      signal,
    })
  const requestedAt = Date.now()
  let response: Response
  try {
    response = await get(`queues/${encodeURIComponent(vhost)}?columns=${COLUMNS}`)
  } catch {
    return { why: 'nothing responds there' }
  }
  const clock = httpClock(response, requestedAt, Date.now())
  if (response.status === 401 || response.status === 403)
    return { why: 'it rejects the user, who needs the tag monitoring' }
  const parsed = Queues.safeParse(await jsonOf(response))
  if (!response.ok || !parsed.success) return { why: 'its responses are not those of RabbitMQ' }
  const names = new Set(wanted.map(({ name }) => name))
  const ours = parsed.data.filter(({ name }) => names.has(name))
  const nodes = await readNodes(get)
  return {
    results: resultsOf(
      checkQueues(parsed.data, wanted, prefix),
      checkPolicies(ours, prefix),
      nodes === null
        ? skipped('alarms', 'not shown to this user', 'Give the user the tag monitoring.')
        : [
            checkAlarms(nodes),
            ...checkMembers(
              ours,
              nodes.filter(({ running }) => running !== false).map(({ name }) => name),
              nodes.length,
            ),
          ],
      clock !== null && checkClock(clock),
    ),
  }
}

function checkQueues(
  there: readonly Queue[],
  wanted: readonly WantedQueue[],
  prefix: string,
): CheckResult[] {
  const byName = new Map(there.map((queue) => [queue.name, queue]))
  const missing = wanted.filter(({ name }) => !byName.has(name)).map(({ name }) => name)
  const drifted = wanted.flatMap(({ name, arguments: needs }) => {
    const queue = byName.get(name)
    const differs = queue === undefined ? [] : differences(queue.arguments, needs)
    return differs.length === 0 ? [] : [driftProblem(name, differs)]
  })
  const known = new Set(wanted.map(({ name }) => name))
  const forgotten = there.filter(
    ({ name, messages = 0 }) =>
      name.startsWith(`${prefix}steps.`) && !known.has(name) && messages > 0,
  )
  return [
    ...summary(wanted.length, missing, drifted),
    ...forgotten.map(({ name, messages }) =>
      warning(
        'queue',
        `${name}: ${messages} messages, and no loaded process has this step`,
        'Load its process again, or delete the queue.',
      ),
    ),
  ]
}

/** The policy keys that make RabbitMQ delete undelivered messages or a whole queue. */
const HARMFUL = ['message-ttl', 'expires']

function checkPolicies(ours: readonly Queue[], prefix: string): CheckResult[] {
  return shippedPolicies().flatMap((shipped) => {
    const pattern = new RegExp(shipped.pattern)
    const covered = ours.filter(
      ({ name, effective_policy_definition: known }) =>
        known !== undefined && pattern.test(name.slice(prefix.length)),
    )
    return covered.length === 0 ? [] : [checkPolicy(shipped, covered)]
  })
}

// The default `delivery-limit` of RabbitMQ 4 is 20. Older versions of RabbitMQ have no default limit.
const DELETED = ', and RabbitMQ 4 deletes a message that is returned to them more than 20 times'

function checkPolicy({ name, definition }: ShippedPolicy, covered: readonly Queue[]): CheckResult {
  const check = `policy ${name}`
  const effective = (queue: Queue): Record<string, unknown> => {
    // RabbitMQ serialises an empty Erlang property list as an empty JSON array instead of an object.
    const value = queue.effective_policy_definition ?? {}
    return Array.isArray(value) ? {} : value
  }
  const harmed = covered.find((queue) =>
    HARMFUL.some((key) => key in effective(queue) && !(key in definition)),
  )
  if (harmed !== undefined)
    return problem(
      check,
      `${harmed.name}: the policy ${harmed.policy ?? '?'} sets ${HARMFUL.filter((key) => key in effective(harmed)).join(' and ')}`,
      'Remove these keys from the policy, or narrow its pattern: undelivered messages are lost.',
    )
  const others = covered.filter((queue) => differences(effective(queue), definition).length > 0)
  const [first] = others
  if (first === undefined) return ok(check, `applies to ${counted(covered.length, 'queue')}`)
  if (others.length === covered.length && covered.every((queue) => !queue.policy))
    return warning(
      check,
      `no policy applies: these queues have no length limit${'delivery-limit' in definition ? DELETED : ''}`,
      `rabbitmqctl import_definitions ${DEFINITIONS} (docs/rabbitmq.md)`,
    )
  return warning(
    check,
    `${first.name}: ${differences(effective(first), definition).join('; ').replaceAll('needs', 'shipped')}${others.length > 1 ? ` (and ${others.length - 1} more)` : ''}`,
    `Keep it if it is intended; otherwise run rabbitmqctl import_definitions ${DEFINITIONS}`,
  )
}

/** Returns the nodes of the cluster; `null` if the user may not read them. */
async function readNodes(
  get: (path: string) => Promise<Response>,
): Promise<readonly Node[] | null> {
  const response = await get('nodes?columns=name,running,mem_alarm,disk_free_alarm').catch(
    () => null,
  )
  const nodes = Nodes.safeParse(response?.ok === true ? await jsonOf(response) : null)
  return nodes.success ? nodes.data : null
}

function checkAlarms(nodes: readonly Node[]): CheckResult {
  const alarms = nodes.flatMap(({ name, running, mem_alarm, disk_free_alarm }) => [
    ...(running === false ? [`${name} does not run`] : []),
    ...(mem_alarm === true ? [`${name} is out of memory`] : []),
    ...(disk_free_alarm === true ? [`${name} is out of disk`] : []),
  ])
  return alarms.length === 0
    ? ok('alarms', 'none')
    : problem(
        'alarms',
        alarms.join(', '),
        'Start nodes that do not run. Free memory or disk space: until then the broker accepts no message.',
      )
}

/** Returns the value of a response in JSON; `null` if it is not JSON, is too large or does not arrive. */
const jsonOf = async (response: Response): Promise<unknown> =>
  parseJson(await boundedText(response).catch(() => ''), SERVICE_LIMITS) ?? null

/** The number of members that RabbitMQ gives a quorum queue by default. With fewer nodes, each node has a member. */
const GROUP_SIZE = 3

/**
 * Returns the check results of the cluster's nodes and quorum queues.
 *
 * @param running the names of the nodes that run
 * @param total the number of nodes of the cluster, including those that do not run
 */
export function checkMembers(
  queues: readonly Pick<Queue, 'name' | 'members' | 'online' | 'leader'>[],
  running: readonly string[],
  total: number,
): CheckResult[] {
  const known = queues.flatMap(({ name, members, online, leader }) =>
    members ? [{ name, members, online: online ?? [], leader }] : [],
  )
  const stopped = known.filter(({ members, online }) => online.length * 2 <= members.length)
  const leaderless = known.filter(
    (queue) => !stopped.includes(queue) && !queue.online.some((node) => node === queue.leader),
  )
  const wanted = Math.min(GROUP_SIZE, running.length)
  const short = known.filter(({ members }) => members.length < wanted)
  return resultsOf(
    checkNodes(running.length, total),
    stopped.length > 0 &&
      problem(
        'majority',
        `no majority of its members is online: ${named(stopped)}`,
        'Start the nodes that do not run: until then these queues neither accept nor deliver a message.',
      ),
    leaderless.length > 0 &&
      problem(
        'leader',
        `has none: ${named(leaderless)}`,
        'Wait some seconds for the election. If it does not end, read the log of RabbitMQ.',
      ),
    short.length > 0 && growProblem(short, running, wanted),
    known.length > 0 &&
      stopped.length + leaderless.length + short.length === 0 &&
      ok('members', `each queue has ${wanted} or more and a leader`),
  )
}

function checkNodes(running: number, total: number): CheckResult {
  const check = 'nodes'
  if (total === 1) return ok(check, '1: no other machine has a copy of a message')
  return total === 2
    ? warning(check, '2: messaging stops when either is lost', 'Run three nodes.')
    : ok(check, `${running} of ${total} run`)
}

/** Returns the check result for queues with too few members, with the commands that add members. */
function growProblem(
  short: readonly { readonly name: string; readonly members: readonly string[] }[],
  running: readonly string[],
  wanted: number,
): CheckResult {
  const nodes = new Set(
    short.flatMap(({ members }) =>
      running.filter((node) => !members.includes(node)).slice(0, wanted - members.length),
    ),
  )
  const fewest = Math.min(...short.map(({ members }) => members.length))
  return problem(
    'members',
    `${fewest} of ${wanted}: ${named(short)}`,
    `${[...nodes].map((node) => `rabbitmq-queues grow ${node} all`).join(' && ')} (docs/rabbitmq.md)`,
  )
}

const SHOWN = 3
const named = (queues: readonly { readonly name: string }[]): string => {
  const names = queues.slice(0, SHOWN).map(({ name }) => name)
  const more = queues.length - SHOWN
  return `${names.join(', ')}${more > 0 ? `, and ${counted(more, 'more queue')}` : ''}`
}
