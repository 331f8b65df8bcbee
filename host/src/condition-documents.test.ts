import { readFile } from 'node:fs/promises'
import { conditions } from '@integration-host/shared/conditions'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { alertRules, withConditionHeads } from './condition-documents.ts'

const read = (path: string): Promise<string> =>
  readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

describe('the documents that are made from the catalogue of conditions', () => {
  it('deploy/prometheus/alerts.yml is up to date with the catalogue (npm run docs)', async () => {
    expect(await read('deploy/prometheus/alerts.yml')).toBe(alertRules())
  })

  it('the heads of docs/runbook.md are up to date with the catalogue (npm run docs)', async () => {
    const runbook = await read('docs/runbook.md')
    expect(withConditionHeads(runbook)).toBe(runbook)
  })

  it('an alert rule has the query, the duration and the texts of its condition', () => {
    const { groups } = parse(alertRules()) as {
      readonly groups: readonly { readonly name: string; readonly rules: readonly unknown[] }[]
    }
    const rules = groups.find(({ name }) => name === 'gateway')?.rules
    expect(rules?.[0]).toEqual({
      alert: 'GatewayErrors',
      expr: 'sum(rate(gateway_requests_total{status=~"5.."}[5m])) / sum(rate(gateway_requests_total[5m])) > 0.05',
      for: '5m',
      labels: { severity: 'warning' },
      annotations: {
        summary: '{{ $value | humanizePercentage }} of the calls to the accounting API fail',
        remedy: conditions.GatewayErrors.remedy,
        runbook: 'docs/runbook.md#gatewayerrors',
      },
    })
  })

  it('withConditionHeads() replaces the quote below a heading, keeps other sections, and rejects a runbook without a section', () => {
    const runbook = Object.keys(conditions)
      .map((name) => `### ${name}\n> old\n\nText of ${name}.\n`)
      .join('\n')
    const next = withConditionHeads(`## Other\n${runbook}### A heading\nText.\n`)
    expect(next).toContain(
      `### ProcessPaused\n\n> **warning**: *process* is paused. **Remedy**: ${conditions.ProcessPaused.remedy}\n\nText of ProcessPaused.\n`,
    )
    expect(next).toContain('### A heading\nText.\n')
    expect(next).not.toContain('> old')
    expect(withConditionHeads(next)).toBe(next)
    expect(() => withConditionHeads('### RunsFailed\n')).toThrow('no section on')
  })
})
