/** Connects two replicas through PgBouncer to a PostgreSQL server that only this test file uses. */
import { expect, it } from 'vitest'
import { anAct } from '../../../test-support/act.ts'
import { openPostgresSource } from '../../../test-support/postgres-source.ts'
import { startPgBouncer } from '../../../../../tests/support/backends/pgbouncer.ts'
import { startPrimary } from '../../../../../tests/support/backends/postgres-nodes.ts'
import { pgBouncerFolder } from '../../../../../tests/support/backends/server-binaries.ts'

const programs = await pgBouncerFolder()

it.skipIf(programs === null)(
  'through PgBouncer in transaction mode, claims never exceed the limit on the number of runs in progress',
  async () => {
    await using server = await startPrimary()
    await using pooler = await startPgBouncer(programs ?? '', server.url, 'transaction')
    await using one = await openPostgresSource(pooler.url)
    await using two = await openPostgresSource(pooler.url)
    const outline = { name: 'Limited', steps: ['only'] } as const
    const ids = Array.from({ length: 40 }, (_, n) => String(n))
    await one.queue(
      outline,
      ids.map((TransactionID) => ({ TransactionID, InitialData: null, ConcurrencyKey: 'ada' })),
    )
    const claim = (id: string, n: number) =>
      (n % 2 === 0 ? one : two).claim({
        Process: 'Limited',
        TransactionID: id,
        ReplayID: 0,
        version: 0,
        step: 'only',
        isFirst: true,
        owner: 'test',
        slot: { limit: 3, key: null },
      })
    const results = await Promise.all(ids.map(claim))
    const claims = results.flatMap((result) => (result.kind === 'claimed' ? [result.claim] : []))
    expect(claims).toHaveLength(3)
    await Promise.all(
      claims.map(({ run }) =>
        one.operate('cancel', { name: 'Limited' }, run.TransactionID, null, anAct),
      ),
    )
    const limits = [{ process: 'Limited', limit: 3 }]
    const granted = await Promise.all([one.grantSlots(limits, null), two.grantSlots(limits, null)])
    expect(granted.flatMap(({ runs }) => runs)).toHaveLength(3)
  },
)
