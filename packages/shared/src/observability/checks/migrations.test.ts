import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { migrationFindings } from './migrations.ts'

const folder = new URL('../../../../../services/coordinator/migrations/', import.meta.url)
const read = (name: string): string => readFileSync(new URL(name, folder), 'utf8')
const { entries } = JSON.parse(read('meta/_journal.json')) as {
  entries: { when: number; tag: string; idx: number }[]
}
const all = entries.map(({ when, tag }) => ({
  at: when,
  hash: createHash('sha256')
    .update(read(`${tag}.sql`))
    .digest('hex'),
}))
const columnsAfter = (index: number): Set<string> => {
  const { tables } = JSON.parse(read(`meta/${String(index).padStart(4, '0')}_snapshot.json`)) as {
    tables: Record<string, { name: string; columns: object }>
  }
  return new Set(
    Object.values(tables).flatMap(({ name, columns: of }) =>
      Object.keys(of).map((column) => `${name}.${column}`),
    ),
  )
}
const columns = columnsAfter(entries.length - 1)
const without = (column: string): Set<string> =>
  new Set([...columns].filter((name) => name !== column))

describe('the migrations of a database', () => {
  it.each([
    ['all applied', all, columns, 'ok', 'all'],
    ['an empty database', null, new Set<string>(), 'warning', 'none applied yet'],
    ['an older database', all.slice(0, 1), columnsAfter(0), 'warning', 'not applied yet'],
    [
      'a column before its time',
      all.slice(0, 1),
      columns,
      'problem',
      'is there before its migration',
    ],
    ['tables without a record', null, columns, 'problem', 'half-migrated: there are tables'],
    ['a column that is missing', all, without('Order_Item.Data'), 'problem', 'Order_Item.Data'],
    ['one left out', all.slice(1), columns, 'problem', 'half-migrated: 0000_'],
    [
      'one changed',
      all.map((one, n) => (n === 0 ? { ...one, hash: 'other' } : one)),
      columns,
      'problem',
      'another form',
    ],
    [
      'a newer database',
      [...all, { at: Date.parse('2100-01-01'), hash: 'x' }],
      columns,
      'problem',
      'a newer version',
    ],
  ])('are told for %s', (_, applied, present, verdict, found) => {
    expect(migrationFindings(fileURLToPath(folder), { applied, columns: present })).toEqual([
      expect.objectContaining({ verdict, found: expect.stringContaining(found) }),
    ])
  })
})
