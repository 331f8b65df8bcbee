import type { MetricsSummary } from '@integration-host/shared/contracts/metrics-summary'
import { eventually, until } from '@integration-host/shared/test-support/eventually'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Backends, openBackends, startFixture } from '../test-support/fixture.ts'
import { processOf } from '../test-support/process-of.ts'
import type { Step } from './step/step.ts'

let backends: Backends
beforeAll(async () => {
  backends = await openBackends('embedded')
})
afterAll(() => backends[Symbol.asyncDispose]())

const process = processOf('Measured', {
  retry: { maxAttempts: 1 },
  steps: {
    good: (step: Step<string>) => step.complete(),
    bad: (step: Step<string>) => (step.initialData === 'bad' ? step.fail('no') : step.complete()),
  },
})

describe('the metrics of the coordinator', () => {
  it('the metrics count runs by status, steps by outcome, and due runs, and no label identifies a single run', async () => {
    await using host = await startFixture(backends, { processes: [process] })
    const metrics = async () => (await fetch(`${host.url}/metrics`)).text()
    await host.queue('canary-good', 'good')
    await host.queue('canary-bad', 'bad')
    await host.reached('canary-good', 'Completed')
    await host.reached('canary-bad', 'Failed')
    const settled = [
      'coordinator_transactions{status="Completed",service="coordinator"} 1',
      'coordinator_transactions{status="Failed",service="coordinator"} 1',
      // A status without runs is reported as 0 instead of being omitted. Otherwise an alert on this status would have
      // no value.
      'coordinator_transactions{status="Running",service="coordinator"} 0',
      'coordinator_runs_in_doubt{state="unfinished",service="coordinator"} 0',
      'coordinator_runs_in_doubt{state="ended",service="coordinator"} 0',
      'coordinator_due_runs{process="Measured",step="bad",service="coordinator"} 0',
      'coordinator_oldest_due_seconds{process="Measured",step="bad",service="coordinator"} 0',
      'coordinator_dead_messages{process="Measured",service="coordinator"} 0',
      'coordinator_steps_total{process="Measured",step="bad",outcome="failed",service="coordinator"} 1',
      'coordinator_online{service="coordinator"} 1',
    ]
    await until(async () => {
      const text = await metrics()
      return settled.every((line) => text.includes(line))
    })
    const text = await metrics()
    expect(text).toMatch(/coordinator_step_duration_seconds_count\{[^}]*step="good"[^}]*\} 2\n/)
    expect(text).toMatch(/coordinator_step_duration_seconds_count\{[^}]*step="bad"[^}]*\} 2\n/)
    expect(text).not.toContain('canary')
    const { Coordinator } = (await (
      await fetch(`${host.url}/metrics/summary`)
    ).json()) as MetricsSummary
    expect(Coordinator).toMatchObject({
      Runs: { Completed: 1, Failed: 1, Running: 0 },
      Steps: { completed: 3, failed: 1 },
      DeadLetters: { Measured: 0 },
      Online: true,
    })
    expect(Coordinator?.Due).toContainEqual({
      Process: 'Measured',
      Step: 'bad',
      Count: 0,
      OldestSeconds: 0,
      IdleSeconds: expect.any(Number),
    })
  })

  it('coordinator_transactions counts a run only under its present status', async () => {
    await using host = await startFixture(backends, { processes: [process] })
    const failed = (count: number) => async () =>
      (await (await fetch(`${host.url}/metrics`)).text()).includes(
        `coordinator_transactions{status="Failed",service="coordinator"} ${count}`,
      )
    await until(failed(1))
    await host.call('/processes/Measured/transactions/canary-bad/resume', { method: 'POST' })
    await host.reached('canary-bad', 'Failed')
    await host.call('/processes/Measured/pause', { method: 'POST' })
    await host.call('/processes/Measured/transactions/canary-bad/resume', { method: 'POST' })
    await until(failed(0))
    await eventually(async () => {
      const text = await (await fetch(`${host.url}/metrics`)).text()
      expect(text).toMatch(/coordinator_due_runs\{[^}]*step="bad"[^}]*\} 1\n/)
      expect(text).toMatch(/coordinator_oldest_due_seconds\{[^}]*step="bad"[^}]*\} (?!0\n)/)
    })
  })

  it('coordinator_steps_total counts the last failed attempt of a step as failed, and earlier failed attempts as retry', async () => {
    const unlucky = processOf('Unlucky', {
      retry: { maxAttempts: 2, baseMs: 1 },
      steps: {
        only: () => {
          throw new Error('not today')
        },
      },
    })
    await using host = await startFixture(backends, { processes: [unlucky] })
    await host.queue('canary-unlucky')
    await host.reached('canary-unlucky', 'Failed')
    const steps = 'coordinator_steps_total{process="Unlucky",step="only"'
    await eventually(async () => {
      const text = await (await fetch(`${host.url}/metrics`)).text()
      for (const outcome of ['retry', 'failed'])
        expect(text).toContain(`${steps},outcome="${outcome}",service="coordinator"} 1\n`)
    })
  })
})
