/**
 * Checks whether the quorum queues have a member on each of three nodes, a leader, and a majority of members online.
 */
import {
  type CheckResult,
  ok,
  problem,
  warning,
} from '@integration-host/shared/observability/checks'
import { counted } from '../terminal.ts'

/** A queue as the management API describes it. A member is absent or `null` if the broker does not know the value. */
export interface QuorumQueue {
  readonly name: string
  /** The nodes that have a copy of the queue. */
  readonly members?: readonly string[] | null | undefined
  /** The nodes in `members` that are running. */
  readonly online?: readonly string[] | null | undefined
  readonly leader?: string | null | undefined
}

/** The number of members that RabbitMQ gives a quorum queue by default. With fewer nodes, each node has a member. */
const GROUP_SIZE = 3

/**
 * Returns the check results of the cluster's nodes and quorum queues.
 *
 * @param running the names of the nodes that run
 * @param total the number of nodes of the cluster, including those that do not run
 */
export function checkMembers(
  queues: readonly QuorumQueue[],
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
  return [
    checkNodes(running.length, total),
    ...(stopped.length > 0
      ? [
          problem(
            'majority',
            `no majority of its members is online: ${named(stopped)}`,
            'Start the nodes that do not run: until then these queues neither accept nor deliver a message.',
          ),
        ]
      : []),
    ...(leaderless.length > 0
      ? [
          problem(
            'leader',
            `has none: ${named(leaderless)}`,
            'Wait some seconds for the election. If it does not end, read the log of RabbitMQ.',
          ),
        ]
      : []),
    ...(short.length > 0 ? [growProblem(short, running, wanted)] : []),
    ...(known.length > 0 && stopped.length + leaderless.length + short.length === 0
      ? [ok('members', `each queue has ${wanted} or more and a leader`)]
      : []),
  ]
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
const named = (queues: readonly { readonly name: string }[]): string =>
  `${queues
    .slice(0, SHOWN)
    .map(({ name }) => name)
    .join(
      ', ',
    )}${queues.length > SHOWN ? `, and ${counted(queues.length - SHOWN, 'more queue')}` : ''}`
