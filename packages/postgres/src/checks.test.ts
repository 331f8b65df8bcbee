import { describe, expect, it } from 'vitest'
import { checkPostgresStandbys } from './checks.ts'

const ANY_1 = 'ANY 1 (*)'

describe('checking the standbys of a PostgreSQL primary', () => {
  it.each([
    ['a single server', '', [], 'ok', 'none'],
    ['asynchronous standbys only', '', ['async', 'async'], 'problem', 'accepted orders vanish'],
    ['asynchronous standbys that the user may not inspect', '', [null], 'problem', 'vanish'],
    [
      'one synchronous standby more than a commit needs',
      ANY_1,
      ['quorum', 'quorum'],
      'ok',
      '2 synchronous, 1 must have',
    ],
    [
      'a potential standby beside the one that a commit needs',
      's1, s2',
      ['sync', 'potential'],
      'ok',
      '2 synchronous, 1',
    ],
    ['one synchronous standby', ANY_1, ['quorum'], 'warning', '1 synchronous, all of them needed'],
    [
      'one synchronous standby beside an asynchronous one',
      's1',
      ['sync', 'async'],
      'warning',
      '1 synchronous, all',
    ],
    [
      'two synchronous standbys that are both needed',
      'FIRST 2 (a, b)',
      ['sync', 'sync'],
      'warning',
      '2 synchronous',
    ],
    ['no connected standby', '*', [], 'problem', '0 synchronous, 1 needed: every commit waits'],
    [
      'fewer synchronous standbys than a commit needs',
      '2 (a, b, c)',
      ['sync'],
      'problem',
      '1 synchronous, 2 needed',
    ],
    ['synchronous standbys that the user may not inspect', ANY_1, [null], 'skipped', 'not shown'],
  ])('the check of Postgres standbys reports %s', (_, standbyNames, syncStates, verdict, found) => {
    expect(
      checkPostgresStandbys({ synchronousCommit: 'on', standbyNames, syncStates }),
    ).toMatchObject({ check: 'standbys', verdict, found: expect.stringContaining(found) })
  })

  it('the check of Postgres standbys reports a problem if commits do not wait for the synchronous standby', () => {
    const replication = { standbyNames: ANY_1, syncStates: ['quorum', 'quorum'] }
    for (const synchronousCommit of ['local', 'off'])
      expect(checkPostgresStandbys({ ...replication, synchronousCommit })).toMatchObject({
        verdict: 'problem',
        found: expect.stringContaining(`synchronous_commit is ${synchronousCommit}`),
      })
    expect(
      checkPostgresStandbys({ ...replication, synchronousCommit: 'remote_write' }),
    ).toMatchObject({ verdict: 'ok' })
  })
})
