/** The alert rules of Prometheus and the heads of the runbook's sections, made from the catalogue of conditions. */
import {
  alertGroups,
  type ConditionName,
  conditions,
  durationMs,
  isConditionName,
  PLACEHOLDER,
  runbookPlace,
} from '@integration-host/shared/conditions'

const HEADER = `\
# Conditions that need an operator, made from packages/shared/src/conditions.ts by \`npm run docs\`. docs/runbook.md has a
# section for each alert: what to check, what to do.
groups:
`

/** Returns the content of deploy/prometheus/alerts.yml. */
export const alertRules = (): string =>
  HEADER +
  Object.entries(alertGroups)
    .map(
      ([group, alerts]) =>
        `  - name: ${group}\n    rules:\n${Object.keys(alerts).map(ruleOf).join('')}`,
    )
    .join('\n')

const HUMANIZED: Readonly<Record<string, string>> = {
  percentage: ' | humanizePercentage',
  duration: ' | humanizeDuration',
}

function ruleOf(name: string): string {
  if (!isConditionName(name)) throw new Error(`${name} is not in the catalogue`)
  const { severity, sentence, remedy, expr = '', for: duration } = conditions[name]
  const summary = sentence.replaceAll(PLACEHOLDER, (_, key: string, unit: string = '') =>
    key === 'value' ? `{{ $value${HUMANIZED[unit] ?? ''} }}` : `{{ $labels.${key} }}`,
  )
  return [
    `      - alert: ${name}`,
    '        expr: >-',
    ...withoutIndent(expr).map((line) => `          ${line}`),
    ...(duration === undefined ? [] : [`        for: ${duration}`]),
    `        labels: { severity: ${severity} }`,
    '        annotations:',
    `          summary: ${quoted(summary)}`,
    `          remedy: ${quoted(remedy)}`,
    `          runbook: ${runbookPlace(name)}`,
    '',
  ].join('\n')
}

/** Returns the lines of a text without the indentation that all of them have. */
function withoutIndent(text: string): readonly string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const indent = Math.min(...lines.map((line) => line.search(/\S/)))
  return lines.map((line) => line.slice(indent))
}

/** Returns a text as a scalar of YAML. */
const quoted = (text: string): string => `'${text.replaceAll("'", "''")}'`

/**
 * Returns the runbook in which the section of each condition begins with its severity, sentence and remedy, as a quote.
 *
 * @throws {Error} a condition has no section.
 */
export function withConditionHeads(runbook: string): string {
  const missing = new Set(Object.keys(conditions))
  const text = runbook.replaceAll(/^### (\w+)\n+(?:> .*\n)*\n*/gm, (section, name: string) => {
    if (!isConditionName(name)) return section
    missing.delete(name)
    return `### ${name}\n\n> ${headOf(name)}\n\n`
  })
  if (missing.size > 0) throw new Error(`the runbook has no section on ${[...missing].join(', ')}`)
  return text
}

function headOf(name: ConditionName): string {
  const { severity, sentence, remedy } = conditions[name]
  const ms = durationMs(name)
  const after = ms === 0 ? '' : ` after ${ms < 60_000 ? `${ms / 1_000} s` : `${ms / 60_000} min`}`
  const text = sentence.replaceAll(PLACEHOLDER, (_, key: string, value?: string) =>
    key === 'value' ? (value === undefined ? '*n*' : `*${value}*`) : `*${key}*`,
  )
  return `**${severity}**${after}: ${text}. **Remedy**: ${remedy}`
}
