/** RabbitMQ's management HTTP API: what AMQP does not tell. */
import { z } from 'zod'
import {
  type Finding,
  ok,
  problem,
  skipped,
  warning,
} from '@integration-host/shared/observability/checks/check-result'
import { clockFinding, httpClock } from '@integration-host/shared/observability/checks/clock'
import {
  DEFINITIONS,
  differences,
  shippedPolicies,
  type ShippedPolicy,
  type WantedQueue,
} from './broker-topology.ts'
import { counted } from '../terminal.ts'
import { driftFinding, summary } from './rabbitmq.ts'

const Settings = z.record(z.string(), z.unknown())
const Queues = z.array(
  z.object({
    name: z.string(),
    arguments: Settings,
    // Each absent until the broker has collected its first figures of the queue.
    policy: z.string().nullable().optional(),
    effective_policy_definition: z
      .union([Settings, z.array(z.never())])
      .nullable()
      .optional(),
    messages: z.number().optional(),
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
const COLUMNS = 'name,arguments,policy,effective_policy_definition,messages'

export interface Management {
  /** Without credentials. */
  readonly url: string
  readonly authorization: string
  readonly vhost: string
  readonly prefix: string
}

/** Looks at queues, policies and alarms. `null`: the API is not there, or not for this user; `why` tells which. */
export async function examineManagement(
  { url, authorization, vhost, prefix }: Management,
  wanted: readonly WantedQueue[],
  signal: AbortSignal,
): Promise<{ readonly findings: readonly Finding[] } | { readonly why: string }> {
  const get = (path: string): Promise<Response> =>
    fetch(`${url}/api/${path}`, {
      headers: { Authorization: authorization },
      redirect: 'manual',
      signal,
    })
  const askedAt = Date.now()
  let answer: Response
  try {
    answer = await get(`queues/${encodeURIComponent(vhost)}?columns=${COLUMNS}`)
  } catch {
    return { why: 'nobody answers there' }
  }
  const clock = httpClock(answer, askedAt, Date.now())
  if (answer.status === 401 || answer.status === 403)
    return { why: 'it refuses the user, who needs the tag monitoring' }
  const parsed = Queues.safeParse(await answer.json().catch(() => null))
  if (!answer.ok || !parsed.success) return { why: 'it answers otherwise than RabbitMQ does' }
  return {
    findings: [
      ...queueFindings(parsed.data, wanted, prefix),
      ...policyFindings(parsed.data, wanted, prefix),
      ...(await alarmFindings(get)),
      ...(clock === null ? [] : [clockFinding(clock)]),
    ],
  }
}

function queueFindings(
  there: readonly Queue[],
  wanted: readonly WantedQueue[],
  prefix: string,
): Finding[] {
  const byName = new Map(there.map((queue) => [queue.name, queue]))
  const missing = wanted.filter(({ name }) => !byName.has(name)).map(({ name }) => name)
  const drifted = wanted.flatMap(({ name, arguments: needs }) => {
    const queue = byName.get(name)
    const differs = queue === undefined ? [] : differences(queue.arguments, needs)
    return differs.length === 0 ? [] : [driftFinding(name, differs)]
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

/** These take away messages that somebody still needs, or the queue with them. */
const HARMFUL = ['message-ttl', 'expires']

function policyFindings(
  there: readonly Queue[],
  wanted: readonly WantedQueue[],
  prefix: string,
): Finding[] {
  const names = new Set(wanted.map(({ name }) => name))
  const ours = there.filter(({ name }) => names.has(name))
  return shippedPolicies().flatMap((shipped) => {
    const pattern = new RegExp(shipped.pattern)
    const covered = ours.filter(
      ({ name, effective_policy_definition: known }) =>
        known !== undefined && pattern.test(name.slice(prefix.length)),
    )
    return covered.length === 0 ? [] : [policyFinding(shipped, covered)]
  })
}

/** The default `delivery-limit` of RabbitMQ 4 is 20, and older versions have none. */
const DELETED = ', and RabbitMQ 4 deletes a message that is returned to them more than 20 times'

function policyFinding({ name, definition }: ShippedPolicy, covered: readonly Queue[]): Finding {
  const check = `policy ${name}`
  const effective = (queue: Queue): Record<string, unknown> => {
    // An empty object of Erlang's is an empty list in JSON.
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
      'Take that out of the policy, or narrow its pattern: messages vanish that are still needed.',
    )
  const others = covered.filter((queue) => differences(effective(queue), definition).length > 0)
  const [first] = others
  if (first === undefined) return ok(check, `holds for ${counted(covered.length, 'queue')}`)
  if (others.length === covered.length && covered.every((queue) => !queue.policy))
    return warning(
      check,
      `no policy holds: these queues may grow without end${'delivery-limit' in definition ? DELETED : ''}`,
      `rabbitmqctl import_definitions ${DEFINITIONS} (docs/rabbitmq.md)`,
    )
  return warning(
    check,
    `${first.name}: ${differences(effective(first), definition).join('; ').replaceAll('needs', 'shipped')}${others.length > 1 ? ` (and ${others.length - 1} more)` : ''}`,
    `Leave it if you mean it; else rabbitmqctl import_definitions ${DEFINITIONS}`,
  )
}

async function alarmFindings(get: (path: string) => Promise<Response>): Promise<Finding[]> {
  const answer = await get('nodes?columns=name,running,mem_alarm,disk_free_alarm').catch(() => null)
  const nodes = Nodes.safeParse(answer?.ok === true ? await answer.json().catch(() => null) : null)
  if (!nodes.success)
    return [skipped('alarms', 'not shown to this user', 'Give the user the tag monitoring.')]
  const alarms = nodes.data.flatMap(({ name, running, mem_alarm, disk_free_alarm }) => [
    ...(running === false ? [`${name} does not run`] : []),
    ...(mem_alarm === true ? [`${name} is out of memory`] : []),
    ...(disk_free_alarm === true ? [`${name} is out of disk`] : []),
  ])
  return alarms.length === 0
    ? [ok('alarms', 'none')]
    : [
        problem(
          'alarms',
          alarms.join(', '),
          'Free memory or disk there: until then nothing is taken.',
        ),
      ]
}
