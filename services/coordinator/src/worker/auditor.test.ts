import { describe, expect, it } from 'vitest'
import { auditOf, type UnfinishedGroup } from '../run/audit.ts'
import type { Pause } from '../run/pause.ts'
import { createAuditor } from './auditor.ts'

const group = (Process: string, StepName: string): UnfinishedGroup => ({
  Process,
  StepName,
  Status: 'Retrying',
  ErrorClass: null,
  WaitingFor: null,
  DefinitionVersion: null,
  Count: 2,
  InDoubt: 0,
  OldestCreatedAt: '2026-11-20T00:00:00.000Z',
  due: 0,
  oldestDueMs: 0,
  stuck: 0,
})

describe('an audit of a store with runs of processes that are not loaded', () => {
  it('the auditor counts a process as not loaded unless another coordinator consumes the queue of one of its steps', async () => {
    const checked: string[] = []
    const paused = new Map<string, Pause>()
    let isOnline = true
    let now = 0
    const consumers: Record<string, number | null> = {
      'Beta.second': 1,
      'Old.one': null,
      'Idle.a': 0,
    }
    const auditor = createAuditor({
      source: {
        audit: async (processes) =>
          auditOf(
            {
              at: '2026-11-20T00:00:00.000Z',
              unfinished: [
                group('Alpha', 'one'),
                group('Beta', 'first'),
                group('Beta', 'second'),
                group('Old', 'one'),
                group('Idle', 'a'),
              ],
              endedBadly: [],
              completed: 0,
              inexact: { unfinished: false, endedBadly: false, completed: false },
              itemViolations: { completedWithoutItem: 0, itemAhead: 0, orphanItems: 0 },
            },
            { processes, paused },
          ),
      },
      pauses: { paused: async () => paused },
      queue: {
        async consumers(process, step) {
          checked.push(`${process}.${step}`)
          return consumers[`${process}.${step}`] ?? null
        },
      },
      processes: ['Alpha'],
      isOnline: () => isOnline,
      now: () => now,
    })
    const { unknownProcesses, violations } = await auditor.audit()
    expect(unknownProcesses).toEqual({ Old: 2, Idle: 2 })
    expect(violations.unknownProcess).toBe(4)
    expect(['Alpha', 'Beta', 'Old', 'Idle'].filter((name) => auditor.runsElsewhere(name))).toEqual([
      'Beta',
    ])

    // The queue is not checked again soon, because the broker logs every check for a missing queue.
    checked.length = 0
    await auditor.audit()
    expect(checked).toEqual(['Beta.second', 'Idle.a'])
    now = 300_000
    checked.length = 0
    await auditor.audit()
    expect(checked).toEqual(['Beta.first', 'Beta.second', 'Old.one', 'Idle.a'])

    // A process without consumers may still be loaded elsewhere, because a coordinator cancels its consumers while the
    // process is paused or the internet is unreachable.
    for (const name of ['Idle', 'Old'])
      paused.set(name, { Process: name, PausedAt: null, PausedBy: null, Reason: null })
    expect((await auditor.audit()).unknownProcesses).toEqual({ Old: 2 })
    paused.clear()
    expect((await auditor.audit()).unknownProcesses).toEqual({ Old: 2, Idle: 2 })
    isOnline = false
    expect((await auditor.audit()).unknownProcesses).toEqual({ Old: 2 })
  })
})
