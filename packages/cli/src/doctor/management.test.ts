import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { CheckResult } from '@integration-host/shared/observability/checks'
import { shippedPolicies, wantedQueues } from './broker-topology.ts'
import { checkMembers, examineManagement } from './management.ts'

const PREFIX = 'acme.'
const ORDERS = {
  Process: 'OrderProcess',
  Steps: ['order'],
  On: ['intuit.Invoice.create', 'entry.Invoice.deleted'],
  Watches: ['intuit.Invoice.update'],
  Events: ['approval'],
  BuiltIn: false,
}
const wanted = wantedQueues([ORDERS], PREFIX)
const STEPS = `${PREFIX}steps.OrderProcess.order`

interface Queue {
  readonly name: string
  arguments: Record<string, unknown>
  policy?: string | null
  effective_policy_definition?: unknown
  messages: number
  members?: readonly string[]
  online?: readonly string[]
  leader?: string | null
}

/** Responds as the management API of RabbitMQ 3.10.8 does. The queues are correct unless a test changes them. */
let queues: Queue[]
let nodes: unknown
let status: number
let url: string
let close: () => void
beforeEach(async () => {
  queues = wanted.map(({ name, arguments: given }) => {
    const policy = shippedPolicies().find(({ pattern }) =>
      new RegExp(pattern).test(name.slice(PREFIX.length)),
    )
    return {
      name,
      arguments: { ...given },
      policy: policy?.name ?? null,
      effective_policy_definition: policy?.definition ?? [],
      messages: 0,
    }
  })
  nodes = [{ name: 'rabbit@a', running: true, mem_alarm: false, disk_free_alarm: false }]
  status = 200
  const server = createServer((request, response) => {
    const isAllowed = request.headers.authorization === 'Basic right'
    const body = request.url?.startsWith('/api/queues/a%2Fb?') ? queues : nodes
    response.writeHead(isAllowed ? status : 401)
    response.end(isAllowed ? JSON.stringify(body) : '{"error":"not_authorized"}')
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  close = () => server.close()
})
afterEach(() => close())

const examine = (authorization = 'Basic right') =>
  examineManagement(
    { url, authorization, vhost: 'a/b', prefix: PREFIX },
    wanted,
    AbortSignal.timeout(5_000),
  )
async function amiss(): Promise<readonly CheckResult[]> {
  const examined = await examine()
  if ('why' in examined) throw new Error(examined.why)
  return examined.results.filter(({ verdict }) => verdict !== 'ok')
}
const change = (name: string, members: Partial<Queue>): void => {
  queues = queues.map((queue) => (queue.name === name ? { ...queue, ...members } : queue))
}

describe('checks of RabbitMQ by the management API', () => {
  it('doctor reports RabbitMQ as ok if all queues and policies are correct', async () => {
    expect(await amiss()).toEqual([])
  })

  it('doctor expects the queues of a process that its definition needs, and no queue start.<Process> if the process is built in', () => {
    const none = { On: [], Watches: [], Events: [] }
    const builtIn = { Process: 'ChangeFeed', Steps: ['read'], ...none, BuiltIn: true }
    const Audit = {
      ...ORDERS,
      Process: 'Audit',
      ...none,
      On: ['entry.Invoice.changed'],
    }
    const names = wantedQueues([ORDERS, builtIn, Audit], PREFIX).map(({ name }) => name)
    for (const name of [
      'on.OrderProcess',
      'changes.OrderProcess',
      'entries.OrderProcess',
      'start.OrderProcess',
      'start.OrderProcess.signal',
      'steps.ChangeFeed.read',
      'steps.OrderProcess.busy',
      'steps.OrderProcess.busy.3',
      'steps.OrderProcess.high',
      'entries.Audit',
    ])
      expect(names).toContain(PREFIX + name)
    for (const name of [
      'on.ChangeFeed',
      'start.ChangeFeed',
      'entries.ChangeFeed',
      'on.Audit',
      'changes.Audit',
      'start.Audit.signal',
    ])
      expect(names).not.toContain(PREFIX + name)
  })

  it('doctor reports every queue argument that has a wrong value or is superfluous', async () => {
    change(STEPS, {
      arguments: { ...queues.at(-1)?.arguments, 'x-delivery-limit': 5, 'x-max-length': 9 },
    })
    expect(await amiss()).toMatchObject([
      {
        verdict: 'problem',
        found: `${STEPS}: x-delivery-limit is 5, needs 20; x-max-length is 9, needs not set`,
      },
    ])
  })

  it('doctor reports missing queues, and step queues that belong to no process', async () => {
    queues = queues.filter(({ name }) => name !== STEPS)
    const forgotten = { arguments: {}, policy: null, effective_policy_definition: [], messages: 3 }
    queues.push({ name: `${PREFIX}steps.Old.one`, ...forgotten })
    queues.push({ name: `${PREFIX}steps.Old.busy`, ...forgotten })
    queues.push({ name: 'steps.Other.one', ...forgotten })
    expect(await amiss()).toMatchObject([
      { verdict: 'warning', found: `missing: ${STEPS}` },
      { verdict: 'warning', found: expect.stringContaining(`${PREFIX}steps.Old.one: 3 messages`) },
      { verdict: 'warning', found: expect.stringContaining(`${PREFIX}steps.Old.busy: 3 messages`) },
    ])
  })

  it('doctor reports queues without a policy, and queues whose policy differs from deploy/definitions.json', async () => {
    change(`${PREFIX}dead.OrderProcess`, { policy: null, effective_policy_definition: [] })
    change(STEPS, { policy: 'tiny', effective_policy_definition: { 'max-length': 5 } })
    expect(await amiss()).toMatchObject([
      {
        check: 'policy integration-steps',
        verdict: 'warning',
        found: `${STEPS}: max-length is 5, shipped 200000`,
      },
      {
        check: 'policy dead-letters',
        verdict: 'warning',
        found: expect.stringMatching(/no policy applies.*returned to them more than 20 times/),
        remedy: expect.stringContaining('import_definitions deploy/definitions.json'),
      },
    ])
  })

  it('doctor reports a policy that deletes undelivered messages as a problem', async () => {
    const harmful = { 'max-length': 200_000, 'message-ttl': 1_000 }
    change(STEPS, { policy: 'ours', effective_policy_definition: harmful })
    expect(await amiss()).toMatchObject([
      { verdict: 'problem', found: `${STEPS}: the policy ours sets message-ttl` },
    ])
  })

  it('doctor ignores the policies of a queue whose statistics the broker has not collected yet', async () => {
    queues = queues.map(({ name, arguments: given, messages }) => ({
      name,
      arguments: given,
      messages,
    }))
    expect(await amiss()).toEqual([])
  })

  it('doctor reports the alarms of RabbitMQ, or that the user has no permission to read the alarms', async () => {
    nodes = [{ name: 'rabbit@a', running: true, mem_alarm: true, disk_free_alarm: true }]
    expect(await amiss()).toMatchObject([
      { verdict: 'problem', found: 'rabbit@a is out of memory, rabbit@a is out of disk' },
    ])
    nodes = { error: 'not_authorised' }
    expect(await amiss()).toMatchObject([{ check: 'alarms', verdict: 'skipped' }])
  })

  it('doctor reports a stopped node of RabbitMQ, and the queues whose only member is on this node', async () => {
    nodes = [
      { name: 'rabbit@a', running: true },
      { name: 'rabbit@b', running: true },
      { name: 'rabbit@c', running: false },
    ]
    for (const { name } of queues)
      change(name, {
        members: ['rabbit@a', 'rabbit@b'],
        online: ['rabbit@a', 'rabbit@b'],
        leader: 'rabbit@a',
      })
    change(STEPS, { members: ['rabbit@c'], online: [], leader: null })
    expect(await amiss()).toMatchObject([
      { check: 'alarms', found: 'rabbit@c does not run' },
      { check: 'majority', found: expect.stringContaining(STEPS) },
      { check: 'members', found: `1 of 2: ${STEPS}` },
    ])
  })

  it('doctor reports the reason if the management API of RabbitMQ cannot be used', async () => {
    expect(await examine('Basic wrong')).toEqual({
      why: expect.stringContaining('rejects the user'),
    })
    status = 500
    expect(await examine()).toEqual({
      why: expect.stringContaining('its responses are not those of RabbitMQ'),
    })
    close()
    url = 'http://127.0.0.1:9'
    expect(await examine()).toEqual({ why: 'nothing responds there' })
  })
})

const NODES = ['rabbit@a', 'rabbit@b', 'rabbit@c'] as const
const [A, B, C] = NODES
type Member = Parameters<typeof checkMembers>[0][number]
const memberQueue = (members: readonly string[], others: Partial<Member> = {}): Member => ({
  name: `queue-${members.length}`,
  members,
  online: members,
  leader: members[0],
  ...others,
})
const amissMembers = (members: readonly Member[], running: readonly string[] = NODES) =>
  checkMembers(members, running, Math.max(running.length, 3)).filter(
    ({ verdict }) => verdict !== 'ok',
  )

describe('the check of quorum queue members by doctor', () => {
  it('doctor reports no problem if each quorum queue has members on three nodes, most of them online, and a leader', () => {
    expect(amissMembers([memberQueue(NODES)])).toEqual([])
    expect(amissMembers([memberQueue(NODES)], [...NODES, 'rabbit@d', 'rabbit@e'])).toEqual([])
  })

  it('doctor prints the commands that add members to quorum queues if the queues were declared while only one node ran', () => {
    const singles = [1, 2, 3, 4].map((n) => memberQueue([A], { name: `q${n}` }))
    expect(amissMembers([...singles, memberQueue(NODES)])).toEqual([
      {
        check: 'members',
        verdict: 'problem',
        found: '1 of 3: q1, q2, q3, and 1 more queue',
        remedy: `rabbitmq-queues grow ${B} all && rabbitmq-queues grow ${C} all (docs/rabbitmq.md)`,
      },
    ])
  })

  it('doctor proposes members on only two further nodes, even if the RabbitMQ cluster has more nodes', () => {
    const [found] = amissMembers([memberQueue([B])], [...NODES, 'rabbit@d', 'rabbit@e'])
    expect(found?.remedy).toMatch(
      /^rabbitmq-queues grow rabbit@a all && rabbitmq-queues grow rabbit@c all \(/,
    )
  })

  it('doctor reports quorum queues without an online majority, and quorum queues whose leader is missing or offline', () => {
    expect(
      amissMembers(
        [
          memberQueue(NODES, { name: 'stopped', online: [A], leader: A }),
          memberQueue(NODES, { name: 'leaderless', online: [A, B], leader: C }),
          memberQueue(NODES, { name: 'electing', online: [A, B], leader: null }),
          memberQueue(NODES, { name: 'degraded', online: [A, B], leader: B }),
        ],
        [A, B],
      ),
    ).toMatchObject([
      { check: 'majority', verdict: 'problem', found: expect.stringMatching(/: stopped$/) },
      { check: 'leader', verdict: 'problem', found: 'has none: leaderless, electing' },
    ])
  })

  it('doctor reports a quorum queue whose only member is on a node that does not run', () => {
    expect(amissMembers([memberQueue([C], { name: 'lost', online: [] })], [A, B])).toMatchObject([
      { check: 'majority', found: expect.stringMatching(/: lost$/) },
      { check: 'members', found: '1 of 2: lost' },
    ])
  })

  it('doctor reports a single RabbitMQ node as ok, and says that no other machine has copies of the messages', () => {
    expect(checkMembers([memberQueue([A])], [A], 1)).toMatchObject([
      { check: 'nodes', verdict: 'ok', found: '1: no other machine has a copy of a message' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('doctor warns of a RabbitMQ cluster of two nodes, because messaging stops when either node is lost', () => {
    expect(checkMembers([memberQueue([A, B])], [A, B], 2)).toMatchObject([
      { check: 'nodes', verdict: 'warning' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('doctor ignores queues for which the RabbitMQ broker reports no members, such as classic queues', () => {
    expect(amissMembers([{ name: 'classic' }])).toEqual([])
  })
})
