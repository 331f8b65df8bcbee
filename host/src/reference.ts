// Writes the generated parts of docs/ and the alert rules of Prometheus: `npm run docs`.
import { readFileSync, writeFileSync } from 'node:fs'
import { alertRules, withConditionHeads } from './condition-documents.ts'
import { commandTables, errorsTable, settingsTable, withGenerated } from './reference-tables.ts'

function change(file: string, next: (text: string) => string): void {
  const path = new URL(`../../${file}`, import.meta.url)
  writeFileSync(path, next(readFileSync(path, 'utf8')))
}
change('docs/cli.md', (text) => withGenerated(text, 'commands', commandTables()))
change('docs/errors.md', (text) => withGenerated(text, 'errors', errorsTable()))
change('docs/settings.md', (text) => withGenerated(text, 'settings', settingsTable()))
change('docs/runbook.md', withConditionHeads)
change('deploy/prometheus/alerts.yml', alertRules)
