import { describe, expect, it } from 'vitest'
import { type Condition, createConditionTimes } from './condition.ts'
import { withFiringAlerts } from './firing-alerts.ts'

const late: Condition = {
  key: 'RunsLate ["P","s"]',
  name: 'RunsLate',
  severity: 'warning',
  title: 'Runs at P.s are late',
  detail: '',
  remedy: '',
  affected: 1,
  knownSince: null,
  forMs: 300_000,
  labels: { process: ['P'], step: ['s'] },
  page: '/processes',
}
const alert = (labels: Readonly<Record<string, string>>, activeAt = 1_000, summary = '') => ({
  labels,
  summary,
  activeAt,
})

describe('the firing alerts of Prometheus', () => {
  it('a firing alert with the name and the labels of a condition shows the condition at once, with the time of the alert', () => {
    const labels = { alertname: 'RunsLate', severity: 'warning', process: 'P', step: 's' }
    const conditions = withFiringAlerts([late], [alert(labels, 4_000)])
    expect(createConditionTimes().dated(conditions, 9_000)).toMatchObject([
      { Name: 'RunsLate', Title: late.title, Since: new Date(4_000).toISOString() },
    ])
  })

  it('a firing alert changes no condition about another step', () => {
    const labels = { alertname: 'RunsLate', process: 'P', step: 'other' }
    const conditions = withFiringAlerts([late], [alert(labels)])
    expect(createConditionTimes().dated(conditions, 9_000)).toMatchObject([
      { Key: expect.stringContaining('other') as unknown },
    ])
  })

  it('a condition that began before the alert of the same name keeps its own time', () => {
    const known = { ...late, knownSince: 500 }
    const conditions = withFiringAlerts([known], [alert({ alertname: 'RunsLate' }, 4_000)])
    expect(createConditionTimes().dated(conditions, 9_000)).toMatchObject([
      { Since: new Date(500).toISOString() },
    ])
  })

  it('a firing alert without a matching condition is shown as a separate condition, with a link if the runbook has a section', () => {
    const conditions = withFiringAlerts(
      [],
      [
        alert({ alertname: 'Watchdog', severity: 'none' }),
        alert({ alertname: 'Own', severity: 'critical', instance: 'a' }, 1_000, 'The disk is full'),
        alert({ alertname: 'QueueUnavailable' }),
      ],
    )
    expect(createConditionTimes().dated(conditions, 9_000)).toMatchObject([
      {
        Name: 'Own',
        InRunbook: false,
        Severity: 'critical',
        Title: 'The disk is full',
        Detail: 'Own · instance a',
        Page: null,
      },
      { Name: 'QueueUnavailable', InRunbook: true, Severity: 'warning', Title: 'QueueUnavailable' },
      { Name: 'Watchdog', InRunbook: false, Severity: 'info' },
    ])
  })
})
