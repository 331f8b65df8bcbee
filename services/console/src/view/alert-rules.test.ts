// The conditions of the console and the alerts of Prometheus must agree, although each of them is evaluated by another
// program.
import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { alertNames } from '../contracts/now.ts'
import { expressionOf } from './alert-rule.ts'
import { eventLoopLag, metricConditions } from './metric-conditions.ts'

interface Alert {
  readonly alert: string
  readonly expr: string
  readonly for?: string
  readonly labels: { readonly severity: string }
}

const file = new URL('../../../../deploy/prometheus/alerts.yml', import.meta.url)
const { groups } = parse(await readFile(file, 'utf8')) as {
  readonly groups: readonly { readonly rules: readonly Alert[] }[]
}
const alerts = groups.flatMap(({ rules }) => rules)

describe('the conditions of the console and the alert rules of Prometheus', () => {
  it('the console knows the name of every alert rule in deploy/prometheus/alerts.yml', () => {
    expect([...alertNames].toSorted()).toEqual(alerts.map(({ alert }) => alert).toSorted())
  })

  const rules = [
    ...metricConditions.map((rule) => ({ ...rule, expression: expressionOf(rule) })),
    { ...eventLoopLag, expression: `${eventLoopLag.metric} > ${eventLoopLag.limit}` },
  ]
  it.each(rules)(
    'the condition $name has the expression, the duration and the severity of its alert',
    ({ name, expression, forMinutes, severity }) => {
      const alert = alerts.find((one) => one.alert === name)
      expect(expression).toBe(alert?.expr)
      expect(forMinutes === 0 ? undefined : `${forMinutes}m`).toBe(alert?.for)
      expect(severity).toBe(alert?.labels.severity)
    },
  )
})
