// Writes the generated parts of docs/errors.md and docs/settings.md: `npm run docs`.
import { readFileSync, writeFileSync } from 'node:fs'
import { errorsTable, settingsTables, withGenerated } from './reference-tables.ts'

const write = (name: string, mark: string, content: string): void => {
  const path = new URL(`../../docs/${name}`, import.meta.url)
  writeFileSync(path, withGenerated(readFileSync(path, 'utf8'), mark, content))
}
write('errors.md', 'errors', errorsTable())
write('settings.md', 'settings', settingsTables())
