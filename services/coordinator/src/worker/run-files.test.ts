import { describe, expect, it } from 'vitest'
import { defineProcess } from '../process/definition.ts'
import orderProcess from '../processes/order-process.ts'
import { createRemoveFilesOfRuns } from './run-files.ts'

describe('the files of runs', () => {
  it('each process names the files of its runs; a process without files, or one that is not loaded, names none', async () => {
    const other = defineProcess('Other', { steps: { only: () => {} } })
    const removed: string[] = []
    const removeFiles = createRemoveFilesOfRuns(
      new Map([orderProcess, other].map((definition) => [definition.name, definition])),
      { demoApiUrl: '', dataDir: '/data' },
      async (paths) => removed.push(...paths),
    )
    const run = { TransactionID: '6/6', ReplayID: 2 }
    await removeFiles(['OrderProcess', 'Other', 'Gone'].map((Process) => ({ Process, ...run })))
    expect(removed).toEqual(['/data/OrderCSV/Order_6%2F6.2.csv'])
  })
})
