import { describe, expect, it } from 'vitest'
import { processOf } from '../../test-support/process-of.ts'
import orderProcess from '../processes/order-process.ts'
import type { RunKey } from '../run/run.ts'
import { createRemoveFilesOfRuns } from './run-files.ts'

describe('the files of runs', () => {
  it('a run has the files that its process lists, and none if the process is not loaded', async () => {
    const other = processOf('Other', { steps: { only: () => {} } })
    const removed: string[] = []
    const removeFiles = createRemoveFilesOfRuns(
      new Map([orderProcess, other].map((definition) => [definition.name, definition])),
      { dataDir: '/data' },
      async (paths) => {
        removed.push(...paths)
        return paths.map(() => ({ status: 'fulfilled', value: true }))
      },
    )
    const run = { TransactionID: '6/6', ReplayID: 2 }
    const result = await removeFiles(
      ['OrderProcess', 'Other', 'Gone'].map((Process) => ({ Process, ...run })),
    )
    expect(result).toEqual({ count: 1, failures: [] })
    expect(removed).toEqual(['/data/OrderCSV/Order_6%2F6.2.csv'])
  })

  it('the files of all runs are removed in one call; a run is reported as failed only if one of its files remains', async () => {
    const files = processOf('Files', {
      steps: { only: () => {} },
      files({ transactionId: id }) {
        if (id === 'defect') throw new Error('a defect')
        return [`${id}-1`, `${id}-2`]
      },
    })
    const calls: (readonly string[])[] = []
    const removeFiles = createRemoveFilesOfRuns(
      new Map([['Files', files]]),
      { dataDir: '/data' },
      async (paths) => {
        calls.push(paths)
        return paths.map((path) =>
          path === 'locked-1'
            ? { status: 'rejected', reason: 'EBUSY' }
            : { status: 'fulfilled', value: path !== 'missing-2' },
        )
      },
    )
    const [defect, locked, missing, whole] = ['defect', 'locked', 'missing', 'whole'].map(
      (TransactionID) => ({ Process: 'Files', TransactionID, ReplayID: 0 }),
    ) as [RunKey, RunKey, RunKey, RunKey]
    expect(await removeFiles([defect, locked, missing, whole])).toEqual({
      count: 4,
      failures: [
        { run: defect, error: new Error('a defect') },
        { run: locked, error: 'EBUSY' },
      ],
    })
    expect(calls).toEqual([['locked', 'missing', 'whole'].flatMap((id) => [`${id}-1`, `${id}-2`])])
  })
})
