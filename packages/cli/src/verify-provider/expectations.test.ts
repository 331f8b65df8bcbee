import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { checks } from './expectations.ts'

const document = await readFile(new URL('../../../../docs/intuit.md', import.meta.url), 'utf8')

describe('the documentation in docs/intuit.md', () => {
  it('each check of verify-provider names an existing section of docs/intuit.md', () => {
    const sections = new Set([...document.matchAll(/^## (.+)$/gm)].map(([, title]) => title))
    const named = Object.values(checks).map(({ section }) => section)
    expect(named.filter((section) => !sections.has(section))).toEqual([])
  })

  it('docs/intuit.md refers only to existing lines of the verify-provider report', () => {
    const [, table = ''] = document.split('| Question | Line of `verify-provider` |')
    const cells = table.split('\n\n')[0]?.matchAll(/\| ([^|]+) \|$/gm) ?? []
    const lines = [...cells].flatMap(([, cell = '']) => [...cell.matchAll(/`([^`]+)`/g)])
    expect(lines.length).toBeGreaterThan(10)
    const unknown = lines.flatMap(([, name = '']) => (Object.hasOwn(checks, name) ? [] : name))
    expect(unknown).toEqual([])
  })
})
