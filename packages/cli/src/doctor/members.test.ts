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

describe('the check of the members of quorum queues', () => {
  it('reports nothing if each queue has a member on three nodes, a majority and a leader', () => {
    expect(amiss([queue(NODES)])).toEqual([])
    expect(amiss([queue(NODES)], [...NODES, 'rabbit@d', 'rabbit@e'])).toEqual([])
  })

  it('reports queues that were declared while one node ran, with the commands that add members', () => {
    const queues = [1, 2, 3, 4].map((n) => queue([A], { name: `q${n}` }))
    expect(amiss([...queues, queue(NODES)])).toEqual([
      {
        check: 'members',
        verdict: 'problem',
        found: '1 of 3: q1, q2, q3, and 1 more queue',
        remediation: `rabbitmq-queues grow ${B} all && rabbitmq-queues grow ${C} all (docs/rabbitmq.md)`,
      },
    ])
  })

  it('adds members on two of the other nodes of a large cluster', () => {
    const [found] = amiss([queue([B])], [...NODES, 'rabbit@d', 'rabbit@e'])
    expect(found?.remediation).toMatch(
      /^rabbitmq-queues grow rabbit@a all && rabbitmq-queues grow rabbit@c all \(/,
    )
  })

  it('reports queues without an online majority, and leaderless queues that have one', () => {
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

  it('reports a queue whose only member is on a node that does not run', () => {
    expect(amiss([queue([C], { name: 'lost', online: [] })], [A, B])).toMatchObject([
      { check: 'majority', found: expect.stringMatching(/: lost$/) },
      { check: 'members', found: '1 of 2: lost' },
    ])
  })

  it('accepts a single node, and says that there is no second copy of a message', () => {
    expect(checkMembers([queue([A])], [A], 1)).toMatchObject([
      { check: 'nodes', verdict: 'ok', found: '1: no other machine has a copy of a message' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('warns of two nodes, because messaging stops when either is lost', () => {
    expect(checkMembers([queue([A, B])], [A, B], 2)).toMatchObject([
      { check: 'nodes', verdict: 'warning' },
      { check: 'members', verdict: 'ok' },
    ])
  })

  it('ignores classic queues, and queues that the broker has not collected yet', () => {
    expect(amiss([{ name: 'classic' }])).toEqual([])
  })
})
