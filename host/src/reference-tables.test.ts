import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { commandTables, errorsTable, settingsTable, withGenerated } from './reference-tables.ts'

const read = (name: string): Promise<string> =>
  readFile(new URL(`../../docs/${name}`, import.meta.url), 'utf8')

describe('the generated reference tables', () => {
  it.each([
    ['errors.md', 'errors', errorsTable],
    ['settings.md', 'settings', settingsTable],
    ['cli.md', 'commands', commandTables],
  ] as const)('docs/%s is up to date with the code (npm run docs)', async (name, mark, make) => {
    const document = await read(name)
    expect(withGenerated(document, mark, make())).toBe(document)
  })

  it('the generated settings table marks required settings and shows permitted values and ranges', () => {
    const settings = settingsTable()
    expect(settings).toContain('| `CREDENTIAL_KEYS` | **required** |')
    expect(settings).toContain('| `REFRESH_AHEAD_SECONDS` | `600` | 0 to 86400 |')
    expect(settings).toContain('| `METRICS_BY_REALM` | `off` | `on` `off` |')
    expect(settings).toContain('| `PORT` of token-service | `7217` | 0 to 65535 |')
  })

  it('withGenerated() replaces the text between the two marker comments, and rejects a document without these comments', () => {
    const document = 'a\n<!-- x: generated -->\nold\n<!-- end -->\nb\n'
    const next = withGenerated(document, 'x', 'new')
    expect(next).toBe('a\n<!-- x: generated -->\n\nnew\n\n<!-- end -->\nb\n')
    expect(withGenerated(next, 'x', 'new')).toBe(next)
    expect(() => withGenerated('nothing', 'x', 'new')).toThrow('must have')
  })
})
