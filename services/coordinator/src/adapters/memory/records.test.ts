import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { expect, it, onTestFinished } from 'vitest'
import { contractTimes } from '../../../test-support/movable-source.ts'
import { recordsContract } from '../../records/records.contract.ts'
import { createScheduleStore } from '../../schedule/schedule-store.ts'
import { createMemoryTransactionSource } from './transaction-source.ts'

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'records-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  return folder
}

recordsContract('ITSourceMemory.json', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'records-'))
  const source = await createMemoryTransactionSource(folder, contractTimes)
  return {
    ...source,
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]()
      await rm(folder, { recursive: true })
    },
  }
})

it('the schedules in the files of an earlier version keep their times', async () => {
  const folder = await newFolder()
  const timing = {
    cron: '0 2 * * *',
    timeZone: 'UTC',
    each: 'once',
    catchUp: 'last',
    jitterSeconds: 0,
  }
  const earlier = (name: string, nextAt: string) => ({
    process: 'OrderProcess',
    name,
    timing,
    nextAt,
    lastAt: null,
    tickAt: null,
    tickCursor: null,
    pausedAt: '2026-11-01T00:00:00.000Z',
    pausedBy: 'ada',
    reason: 'closed',
    removedAt: null,
  })
  const state = { runs: [], paused: [], schedules: [earlier('a', '2026-12-01T02:00:00.000Z')] }
  const entry = JSON.stringify({
    n: 1,
    entry: { schedule: earlier('b', '2026-12-02T02:00:00.000Z') },
  })
  await writeFile(
    join(folder, 'ITSourceMemory.json'),
    JSON.stringify({ format: 'integration-host transactions 1', n: 0, state }),
  )
  const sum = crc32(entry).toString(16).padStart(8, '0')
  await writeFile(join(folder, 'ITSourceMemory.journal'), `${sum} ${entry}\n`)

  await using source = await createMemoryTransactionSource(folder)
  const { rows } = await createScheduleStore(source).schedules()
  expect(rows.map(({ Name, NextAt, PausedBy }) => [Name, NextAt, PausedBy])).toEqual([
    ['a', '2026-12-01T02:00:00.000Z', 'ada'],
    ['b', '2026-12-02T02:00:00.000Z', 'ada'],
  ])
})
