import { describe, expect, it } from 'vitest'
import { checkMembers, type QuorumQueue } from './members.ts'

const NODES = ['rabbit@a', 'rabbit@b', 'rabbit@c'] as const
const [A, B, C] = NODES
const queue = (members: readonly string[], others: Partial<QuorumQueue> = {}): QuorumQueue => ({
  name: `queue-${members.length}`,
  members,
  online: members,
  leader: members[0],
  ...others,
})
const amiss = (queues: readonly QuorumQueue[], running: readonly string[] = NODES) =>
  checkMembers(queues, running, Math.max(running.length, 3)).filter(
    ({ verdict }) => verdict !== 'ok',
  )

describe('the check of quorum queue members by doctor', () => {
  it('doctor reports no problem if each quorum queue has members on three nodes, most of them online, and a leader', () => {
    expect(amiss([queue(NODES)])).toEqual([])
    expect(amiss([queue(NODES)], [...NODES, 'rabbit@d', 'rabbit@e'])).toEqual([])
  })

  it('doctor prints the commands that add members to quorum queues if the queues were declared while only one node ran', () => {
    const queues = [1, 2, 3, 4].map((n) => queue([A], { name: `q${n}` }))
    expect(amiss([...queues, queue(NODES)])).toEqual([
      {
        check: 'members',
        verdict: 'problem',
        found: '1 of 3: q1, q2, q3, and 1 more queue',
        remedy: `rabbitmq-queues grow ${B} all && rabbitmq-queues grow ${C} all (docs/rabbitmq.md)`,
      },
    ])
  })

  it('doctor proposes members on only two further nodes, even if the RabbitMQ cluster has more nodes', () => {
    const [found] = amiss([queue([B])], [...NODES, 'rabbit@d', 'rabbit@e'])
    expect(found?.remedy).toMatch(
      /^rabbitmq-queues grow rabbit@a all && rabbitmq-queues grow rabbit@c all \(/,
    )
  })

  it('doctor reports quorum queues without an online majority, and quorum queues whose leader is missing or offline', () => {
    expect(
      amiss(
        [
          queue(NODES, { name: 'stopped', online: [A], leader: A }),
          queue(NODES, { name: 'leaderless', online: [A, B], leader: C }),
          queue(NODES, { name: 'electing', online: [A, B], leader: null }),
          queue(NODES, { name: 'degraded', online: [A, B], leader: B }),
        ],
        [A, B],
      ),
    ).toMatchObject([
      { check: 'majority', verdict: 'problem', found: expect.stringMatching(/: stopped$/) },
      { check: 'leader', verdict: 'problem', found: 'has none: leaderless, electing' },
    ])
  })

  it('doctor reports a quorum queue whose only member is on a node that does not run', () => {
    expect(amiss([queue([C], { name: 'lost', online: [] })], [A, B])).toMatchObject([
      { check: 'majority', found: expect.stringMatching(/: lost$/) },
      { check: 'members', found: '1 of 2: lost' },
    ])
  })

  it('doctor reports a single RabbitMQ node as ok, and says that no other machine has copies of the messages', () => {
    expect(checkMembers([queue([A])], [A], 1)).toMatchObject([
      { check: 'nodes', verdict: 'ok', found: '1: no other machine has a copy of a message' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('doctor warns of a RabbitMQ cluster of two nodes, because messaging stops when either node is lost', () => {
    expect(checkMembers([queue([A, B])], [A, B], 2)).toMatchObject([
      { check: 'nodes', verdict: 'warning' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('doctor ignores queues for which the RabbitMQ broker reports no members, such as classic queues', () => {
    expect(amiss([{ name: 'classic' }])).toEqual([])
  })
})
