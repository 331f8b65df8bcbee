import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { commandTables, errorsTable, settingsTables, withGenerated } from './reference-tables.ts'

const read = (name: string): Promise<string> =>
  readFile(new URL(`../../docs/${name}`, import.meta.url), 'utf8')

describe('the generated reference tables', () => {
  it.each([
    ['errors.md', 'errors', errorsTable],
    ['settings.md', 'settings', settingsTables],
    ['cli.md', 'commands', commandTables],
  ] as const)('docs/%s is up to date with the code (npm run docs)', async (name, mark, make) => {
    const document = await read(name)
    expect(withGenerated(document, mark, make())).toBe(document)
  })

  it('the generated settings tables mark required settings and show permitted values and ranges', () => {
    const [tokenService = ''] = settingsTables().split('### accounting-gateway')
    expect(tokenService).toContain('| `CREDENTIAL_KEYS` | **required** |')
    expect(tokenService).toContain('| `REFRESH_AHEAD_SECONDS` | `600` | 0 to 86400 |')
    expect(tokenService).toContain('| `METRICS_BY_REALM` | `off` | `on` `off` |')
    expect(tokenService).toContain('| `PORT` | `7217` | 0 to 65535 |')
  })

  it('withGenerated() replaces the text between the two marker comments, and rejects a document without these comments', () => {
    const document = 'a\n<!-- x: generated -->\nold\n<!-- end -->\nb\n'
    const next = withGenerated(document, 'x', 'new')
    expect(next).toBe('a\n<!-- x: generated -->\n\nnew\n\n<!-- end -->\nb\n')
    expect(withGenerated(next, 'x', 'new')).toBe(next)
    expect(() => withGenerated('nothing', 'x', 'new')).toThrow('must have')
  })
})
